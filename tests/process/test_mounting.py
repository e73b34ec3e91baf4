"""A gateway in another FastAPI application, without a server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from starlette.routing import Mount

import gateway
from gateway.errors import ConfigurationError
from gateway.process import mounted
from gateway.process.app import create_app, running_apps
from gateway.process.mounted import _below
from gateway.settings.model import Settings
from gateway.web.mounted_body_time import TimedBody
from loadtest.cluster import new_key
from tests.asgi import HOST, Client, raw_headers
from tests.identity import ISSUER
from tests.integration.raw import Answer, request, tool_call
from tests.integration.streams import ACCEPT_BOTH, events_of
from tests.process.host import make_host
from tests.waiting import until

SETTINGS: dict[str, Any] = {"seal_keys": new_key(), "audience": "tests", "auth": "none"}
PUBLIC: dict[str, Any] = {
    **SETTINGS,
    "auth": "jwt",
    "jwt_secret": "0123456789abcdef0123456789abcdef",
    "jwt_issuer": ISSUER,
    "public_url": "https://example.com/tools",
    "allowed_hosts": "example.com",
}
WELL_KNOWN = "/.well-known/oauth-protected-resource"
NOT_RUNNING = "The gateway is not running: the lifespan of the application that it is mounted in has not run"
ECHO = tool_call("echo", {"text": "hello"})


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"GATEWAY_{name.upper()}", raising=False)


@pytest.fixture(autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    yield
    assert running_apps == {}


def mount(app: FastAPI, prefix: str = "/tools", **options: Any) -> FastAPI:
    gateway.mount(app, prefix, **{"tools": "tests.integration.tools", **SETTINGS, **options})
    return app


@asynccontextmanager
async def started(app: FastAPI) -> AsyncIterator[FastAPI]:
    async with app.router.lifespan_context(app):
        yield app


async def post(app: FastAPI, message: dict[str, Any], path: str = "/tools/mcp", **headers: str) -> Answer:
    return await Client(app).send([msgspec.json.encode(message)], raw_headers(message, **headers), path=path)


async def get(app: FastAPI, path: str, method: str = "GET") -> Answer:
    return await Client(app).send([b""], (HOST,), method=method, path=path)


async def test_tools_are_served_below_the_path_and_nothing_else_changes() -> None:
    app = FastAPI()
    app.get("/mine")(lambda: "mine")
    async with started(mount(app)):
        assert (await post(app, ECHO)).text == "hello"
        assert msgspec.json.decode((await get(app, "/mine")).body) == "mine"
        assert (await get(app, "/docs")).status == 200
        assert "/tools/mcp" not in app.openapi()["paths"]
        for path in ("/mcp", "/healthz", "/tools", "/tools/tools/mcp", "/tools/docs"):
            assert (await post(app, ECHO, path)).status in (307, 404)


async def test_the_endpoint_is_also_served_with_a_slash_and_other_paths_name_it() -> None:
    async with started(mount(FastAPI())) as app:
        assert (await post(app, ECHO, "/tools/mcp/")).text == "hello"
        lost = await post(app, ECHO, "/tools/other")
        assert lost.error == (404, -32600)
        assert lost.message["error"]["message"].endswith(" POST /tools/mcp")


async def test_tools_use_what_the_host_has_opened_and_its_state_stays() -> None:
    host = make_host(**SETTINGS)
    async with host.router.lifespan_context(host) as state:
        assert state == {"greeting": "Good morning"}
        answers = {"who": {"action": "accept", "content": {"name": "Ada"}}}
        asked = await post(host, tool_call("greet"))
        again = tool_call("greet", {}, requestState=asked.state, inputResponses=answers)
        assert (await post(host, again)).result["inputRequests"].keys() == {"mood"}


async def test_a_host_may_start_again() -> None:
    host = make_host(**SETTINGS)
    for _ in range(2):
        async with started(host):
            assert (await post(host, tool_call("blocking"))).text == "done"


@pytest.mark.parametrize("path", ["/tools/mcp", "/tools/healthz", "/tools/readyz", "/tools/other"])
async def test_a_request_before_the_start_and_after_the_end_fails_with_a_line_that_says_so(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = mount(FastAPI())
    for _ in range(2):
        refused = await post(app, ECHO, path)
        assert refused.error == (500, -32603)
        assert refused.message["error"]["message"] == NOT_RUNNING
        async with started(app):
            assert (await post(app, ECHO)).text == "hello"
    (told, *_more) = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert "give `gateway.mount` the application that the server runs" in told


async def test_a_host_that_is_mounted_itself_never_starts_it() -> None:
    inner, outer = mount(FastAPI()), FastAPI()
    outer.mount("/inner", inner)
    async with started(outer):
        assert (await post(outer, ECHO, "/inner/tools/mcp")).message["error"]["message"] == NOT_RUNNING


async def test_an_application_of_its_own_says_so_too_if_it_is_mounted_by_hand() -> None:
    app, host = create_app(Settings.load({}, tools="tests.integration.tools", **SETTINGS)), FastAPI()
    host.mount("/tools", app)
    async with started(host):
        assert (await post(host, ECHO)).message["error"]["message"] == NOT_RUNNING
    async with started(app):
        assert (await post(host, ECHO)).text == "hello"


async def test_health_checks_are_below_the_path_unless_they_are_off() -> None:
    async with started(mount(FastAPI())) as app:
        assert (await get(app, "/tools/healthz")).message == {"status": "alive"}
        assert (await get(app, "/tools/readyz")).message == {"status": "ready", "clock": {}}
    async with started(mount(FastAPI(), health=False)) as app:
        assert {(await get(app, f"/tools/{name}")).status for name in ("healthz", "readyz")} == {404}


async def test_metrics_are_below_the_path_if_they_are_on() -> None:
    async with started(mount(FastAPI())) as app:
        assert (await get(app, "/tools/metrics")).status == 404
    async with started(mount(FastAPI(), metrics=True)) as app:
        metrics = await get(app, "/tools/metrics")
        assert metrics.headers["content-type"].startswith("text/plain")
        assert b"gateway_calls_waiting " in metrics.body
        assert (await get(app, "/metrics")).status == 404


@pytest.mark.parametrize(
    ("public_url", "paths"),
    [
        ("https://example.com/tools", ["/tools/mcp", "/tools/mcp/"]),
        ("https://example.com/api/tools/mcp", ["/tools/mcp", "/api/tools/mcp", "/api/tools/mcp/"]),
    ],
)
async def test_metadata_is_at_the_root_of_the_host_and_challenges_name_it(public_url: str, paths: list[str]) -> None:
    async with started(mount(FastAPI(), **{**PUBLIC, "public_url": public_url})) as app:
        resource = public_url.removesuffix("/mcp") + "/mcp"
        for path in paths:
            found = await Client(app).send([b""], [(b"host", b"example.com")], method="GET", path=WELL_KNOWN + path)
            assert found.message == {
                "resource": resource,
                "authorization_servers": [ISSUER],
                "bearer_methods_supported": ["header"],
            }
        for path in (WELL_KNOWN, f"{WELL_KNOWN}/mcp", f"/tools{WELL_KNOWN}", f"/tools{WELL_KNOWN}/mcp"):
            assert (await get(app, path)).status in (403, 404)
        challenge = (await post(app, ECHO)).headers["www-authenticate"]
        url = resource.replace("https://example.com", f"https://example.com{WELL_KNOWN}")
        assert challenge == f'Bearer realm="mcp", resource_metadata="{url}"'


async def test_without_a_public_url_the_host_gets_no_metadata() -> None:
    app = mount(FastAPI(), **{**PUBLIC, "public_url": None})
    assert [route for route in app.routes if "well-known" in getattr(route, "path", "")] == []


@pytest.mark.setting("replica_url", "public_url")
@pytest.mark.parametrize("setting", ["public_url", "replica_url"])
def test_a_url_without_the_path_is_reported(setting: str, caplog: pytest.LogCaptureFixture) -> None:
    mount(FastAPI(), **{**PUBLIC, setting: "https://example.com"})
    (told,) = [vars(record) for record in caplog.records]
    assert (told["setting"], told["path"]) == (f"GATEWAY_{setting.upper()}", "/tools")


async def test_a_path_of_the_server_in_front_of_it_changes_nothing() -> None:
    async with started(mount(FastAPI(), metrics=True)) as app:
        client = Client(app, root_path="/api")
        message = msgspec.json.encode(ECHO)
        assert (await client.send([message], raw_headers(ECHO), path="/api/tools/mcp")).text == "hello"
        for path in ("/api/tools/healthz", "/api/tools/metrics"):
            answer = await Client(app, root_path="/api").send([b""], (HOST,), method="GET", path=path)
            assert answer.status == 200


async def test_two_gateways_live_in_one_application() -> None:
    app = mount(mount(FastAPI()), "/more", tools="gateway.demo")
    async with started(app):
        assert (await post(app, ECHO)).text == "hello"
        names = {tool["name"] for tool in (await post(app, request("tools/list"), "/more/mcp")).result["tools"]}
        assert "echo" not in names
        gateway.draining()
        await asyncio.sleep(0)
        assert {(await get(app, f"{path}/readyz")).status for path in ("/tools", "/more")} == {503}


@pytest.mark.parametrize("prefix", ["", "/", "tools", "/tools/", "/{name}", "/a b", "/a//b"])
def test_an_invalid_path_is_refused_in_one_line(prefix: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^cannot mount at .*; use a path such as '/tools'$"):
        mount(FastAPI(), prefix)


@pytest.mark.parametrize("taken", ["/tools", ""])
def test_a_path_that_another_route_serves_is_refused_in_one_line(taken: str) -> None:
    app = FastAPI()
    if taken:
        mount(app, taken)
    else:
        app.router.routes.append(Mount("/", FastAPI()))
    with pytest.raises(ConfigurationError, match=r"^cannot mount at '/tools': another route .* serves /tools/mcp; .*$"):
        mount(app)


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("/tools/readyz", {}),
        ("/tools/{name}", {}),
        ("/tools/metrics", {"metrics": True}),
        ("/{path:path}", {}),
        (
            "/.well-known/{path:path}",
            {"auth": "jwt", "jwt_secret": "0" * 32, "public_url": "https://example.com/tools"},
        ),
    ],
)
def test_a_page_that_answers_for_the_gateway_is_refused_in_one_line(path: str, options: Mapping[str, Any]) -> None:
    app = FastAPI()
    app.get(path)(page)
    with pytest.raises(ConfigurationError, match=r"^cannot mount at '/tools': another route .* serves /.*; use .*$"):
        mount(app, **options)


async def page() -> str:
    return "my own page"


def test_the_gateway_ignores_other_pages_of_its_host() -> None:
    app = FastAPI()
    app.get("/tools/readyz")(page)
    app.get("/tools/metrics")(page)
    mount(app, health=False)


@pytest.mark.setting("body_seconds")
async def test_a_body_has_the_time_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    class Noting(TimedBody):
        def __init__(self, receive: Any, send: Any, seconds: float) -> None:
            given.append(seconds)
            super().__init__(receive, send, seconds)

    monkeypatch.setattr(mounted, "TimedBody", Noting)
    app = mount(FastAPI(), body_seconds=7)
    async with started(app):
        assert (await post(app, ECHO)).text == "hello"
    assert given == [7]


@pytest.mark.parametrize("name", ["environ", "host", "metrics_port", "named", "port", "problems"])
def test_an_argument_that_is_not_a_setting_of_a_mounted_gateway_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"'{name}' is not a setting of a mounted gateway"):
        mount(FastAPI(), **{name: "9091"})


@pytest.mark.setting("replica_id")
async def test_each_start_is_a_replica_of_its_own_unless_it_has_a_name() -> None:
    for given, count in (({}, 2), ({"replica_id": "r7"}, 1)):
        app, seen = mount(FastAPI(), **given), set()
        for _ in range(2):
            async with started(app):
                answer = await post(app, ECHO)
                seen.add(dict(answer.headers)["x-gateway-replica"])
        assert len(seen) == count


@pytest.mark.setting("replica_url", "peers", "holders")
@pytest.mark.parametrize(
    ("prefix", "given", "used"),
    [
        ("/tools", "http://r1/tools/mcp", "http://r1/tools"),
        ("/tools", "http://r1/tools/", "http://r1/tools"),
        ("/mcp", "http://r1/mcp", "http://r1/mcp"),
        ("/mcp", "http://r1/mcp/mcp", "http://r1/mcp"),
        ("/a/mcp", "http://mcp/a/mcp/", "http://mcp/a/mcp"),
    ],
)
def test_the_urls_of_replicas_keep_the_path_of_the_mount_even_if_that_is_mcp(
    prefix: str, given: str, used: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = _below(prefix, Settings.load({}, replica_url=given, peers=f"{given},http://r2/other", holders=given))
    assert (settings.replica_url, settings.peers[0], settings.holders) == (used, used, (used,))
    mount(FastAPI(), prefix, replica_url=given, public_url=f"http://127.0.0.1{prefix}/mcp")
    assert "the URL does not end with the path of the gateway" not in caplog.text


def test_every_wrong_setting_is_reported_at_mounting_by_the_name_that_was_given() -> None:
    with pytest.raises(ConfigurationError) as raised:
        gateway.mount(FastAPI(), "/tools", tools="not a module", auth="maybe", drain="soon")
    assert [problem.partition(":")[0] for problem in raised.value.problems] == [
        "tools=",
        "auth=",
        "'drain' is not a setting",
    ]
    with pytest.raises(ConfigurationError) as raised:
        gateway.mount(FastAPI(), "/tools", tools="tests.integration.tools")
    assert [problem.partition(":")[0] for problem in raised.value.problems] == [
        "GATEWAY_SEAL_KEYS",
        "GATEWAY_AUDIENCE",
        "GATEWAY_JWT_SECRET",
    ]


async def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(f"GATEWAY_{name.upper()}", value)
    app = FastAPI()
    gateway.mount(app, "/tools", tools=["tests.integration.tools"])
    async with started(app):
        assert (await post(app, ECHO)).text == "hello"


async def test_a_tool_module_that_is_wrong_stops_the_start() -> None:
    app = mount(FastAPI(), tools="tests.no_such_module")
    with pytest.raises(ConfigurationError, match=r"no module named 'tests\.no_such_module'"):
        async with started(app):
            pass


@pytest.mark.setting("auth")
@pytest.mark.parametrize(
    ("server", "status"),
    [
        (("127.0.0.1", 80), 200),
        (("::1", 80), 200),
        (("/run/app.sock", None), 200),
        (None, 200),
        (("10.0.0.7", 80), 403),
        (("0.0.0.0", 80), 403),
    ],
)
async def test_without_identity_nobody_is_served_at_an_address_that_others_reach(server: Any, status: int) -> None:
    async with started(mount(FastAPI())) as app:
        client = Client(app, server=server)
        answer = await client.send([msgspec.json.encode(ECHO)], raw_headers(ECHO), path="/tools/mcp")
        assert answer.status == status


@pytest.mark.parametrize("sent", ["/tools/%6dcp", "/%74ools/mcp", "/tools/mcp%2F", "/tools/mcp%0A"])
async def test_an_encoded_path_stands_for_no_other_path(sent: str) -> None:
    async with started(mount(FastAPI())) as app:
        client = Client(app, raw_path=sent.encode())
        answer = await client.send([msgspec.json.encode(ECHO)], raw_headers(ECHO), path="/tools/mcp")
        assert answer.status == 404


async def test_draining_ends_streams_refuses_new_calls_and_says_so_and_can_be_called_anywhere() -> None:
    async with started(mount(FastAPI())) as app:
        message = request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        client = Client(app)
        held = client.send([msgspec.json.encode(message)], raw_headers(message, accept=ACCEPT_BOTH), path="/tools/mcp")
        stream = asyncio.create_task(held)
        await until(lambda: client.sent)
        thread = threading.Thread(target=gateway.draining)
        thread.start()
        thread.join()
        gateway.draining()
        ended = await asyncio.wait_for(stream, 10)
        assert events_of(ended)[-1]["result"]["resultType"] == "complete"
        assert (await post(app, ECHO)).error == (503, -31001)
        assert (await get(app, "/tools/readyz")).message["status"] == "leaving"
        assert (await get(app, "/tools/healthz")).status == 200


def test_draining_is_nothing_to_do_where_nothing_runs() -> None:
    gateway.draining()


async def refuse() -> None:
    raise HTTPException(418)


async def test_middleware_of_the_host_guards_the_gateway_and_its_dependencies_do_not() -> None:
    app = FastAPI(dependencies=[Depends(refuse)])
    app.get("/mine")(lambda: "mine")
    async with started(mount(app)):
        assert (await get(app, "/mine")).status == 418
        assert (await post(app, ECHO)).text == "hello"

    guarded = mount(FastAPI())

    @guarded.middleware("http")
    async def without_a_key(_request: Request, _call_next: object) -> Response:
        return Response(status_code=418)

    async with started(guarded):
        assert (await post(guarded, ECHO)).status == 418


PAGE = "https://app.example.com"


async def test_an_origin_must_be_allowed_by_the_gateway_beside_cors_middleware_of_the_host() -> None:
    for allowed, status in (("", 403), (PAGE, 200)):
        app = FastAPI()
        app.add_middleware(CORSMiddleware, allow_origins=[PAGE], expose_headers=["Mcp-Session-Id"])
        async with started(mount(app, allowed_origins=allowed)):
            answer = await post(app, ECHO, origin=PAGE)
        assert answer.status == status
        assert answer.headers["access-control-allow-origin"] == PAGE
        if status == 403:
            assert answer.message["error"]["message"].endswith("GATEWAY_ALLOWED_ORIGINS")


async def test_pages_need_no_middleware_of_the_host() -> None:
    async with started(mount(FastAPI(), allowed_origins=PAGE)) as app:
        asked = [HOST, (b"origin", PAGE.encode()), (b"access-control-request-method", b"POST")]
        preflight = await Client(app).send([b""], asked, method="OPTIONS", path="/tools/mcp")
        assert (preflight.status, preflight.headers["access-control-allow-origin"]) == (204, PAGE)
        assert "mcp-session-id" in (await post(app, ECHO, origin=PAGE)).headers["access-control-expose-headers"]


@pytest.mark.setting("max_children", "upstreams")
async def test_upstreams_run_programs_beside_the_application_only_if_a_setting_says_so(tmp_path: Path) -> None:
    file = tmp_path / "upstreams.json"
    file.write_text('{"mcpServers": {"time": {"command": "no-such-program"}}}')
    with pytest.raises(ConfigurationError, match="time: runs a program, but GATEWAY_MAX_CHILDREN allows none"):
        async with started(mount(FastAPI(), upstreams=str(file))):
            pass
    async with started(mount(FastAPI(), upstreams=str(file), max_children=1)) as app:
        assert (await post(app, ECHO)).text == "hello"
