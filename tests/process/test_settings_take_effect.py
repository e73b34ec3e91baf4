"""Settings change what a replica does that is built from them."""

from __future__ import annotations

import asyncio
import functools
import gc
import math
import os
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from gateway import Context, tool
from gateway.auth import make_verifier
from gateway.auth.inspection import inspect_exchange, inspect_provider
from gateway.auth.providers import UrlKeys
from gateway.auth.tokens import mint
from gateway.authoring.server import identity_of
from gateway.calls.task_creation import TaskLimits
from gateway.errors import HttpRefusal, InProgress, RpcError
from gateway.http.callbacks import Refusal
from gateway.observability import tracing
from gateway.observability.metrics import Telemetry
from gateway.process import app as process_app
from gateway.process import replica, services
from gateway.process.app import GatewayApp, _origin_policy, make_server
from gateway.protocol.headers import Headers
from gateway.protocol.identity import Identity
from gateway.protocol.versions import LEGACY, LEGACY_VERSIONS
from gateway.settings.model import Settings
from gateway.tokens.request_ids import ReplicaAddress
from gateway.tokens.request_state import FlowLimits
from gateway.upstreams.held.holder import Holder
from gateway.upstreams.held.holders import HELLO
from gateway.upstreams.held.messages import KIND, LISTEN
from gateway.web.hop import HopClient
from gateway.web.peers import Peers
from gateway.wires import assembly
from gateway.wires.draft.task_results import TaskAnswers
from gateway.wires.legacy.answer_delivery import ANSWER
from loadtest.cluster import new_key
from tests.asgi import HOST, Client, make_app
from tests.identity import SigningKey, key_set
from tests.integration.raw import META, META_CAPABILITIES, Answer, request, tool_call
from tests.waiting import until

SECRET = "a secret that only these tests know, 32 bytes"
NOWHERE = "redis://127.0.0.1:1"
SAID = Identity(
    name="tools",
    title="Tools",
    version="1",
    instructions="Ask.",
    website_url="https://tools.example",
    icons=({"src": "https://tools.example/icon"},),
)
WORDS: dict[str, tuple[str, Any]] = {
    "name": ("shop", "shop"),
    "title": ("The shop", "The shop"),
    "version": ("7", "7"),
    "instructions": ("Search.", "Search."),
    "website_url": ("https://shop.example", "https://shop.example"),
    "icons": ("https://shop.example/icon", ({"src": "https://shop.example/icon"},)),
}
SERVED = {
    "GATEWAY_TOOLS": "tests.integration.tools",
    "GATEWAY_SEAL_KEYS": new_key(),
    "GATEWAY_AUDIENCE": "tests",
    "GATEWAY_AUTH": "none",
    "GATEWAY_AUDIT_LOG": "off",
}
NOBODY: dict[str, Any] = {"principal": None, "scopes": [], "ends_at": math.inf, "key": b"", "session": b""}


class Who(BaseModel):
    name: str


@tool(asks={})
async def ask_undeclared(ctx: Context) -> str:
    """Ask what is not declared."""
    return (await ctx.elicit("who", "Who?", Who)).name


@tool
async def name_replica(ctx: Context) -> str:
    """Name the process that runs this."""
    return ctx.replica_id


@tool
async def break_down() -> str:
    """Fail."""
    raise RuntimeError("out of paper")


@tool(task="required")
async def run_later() -> str:
    """Run as a task."""
    return "done"


async def begin_session(app: GatewayApp) -> str:
    params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    begun = await send(app, {"method": "initialize", "params": params})
    return begun.headers["mcp-session-id"]


async def ping(app: GatewayApp, session: str) -> int:
    headers = {"mcp-session-id": session, "mcp-protocol-version": LEGACY}
    return (await send(app, {"method": "ping"}, **headers)).status


async def send(app: GatewayApp, message: dict[str, Any], **headers: str) -> Answer:
    given = {"content-type": "application/json", "accept": "application/json, text/event-stream", **headers}
    lines = [HOST, *((name.encode(), value.encode()) for name, value in given.items())]
    return await Client(app).send([msgspec.json.encode({"jsonrpc": "2.0", "id": 1, **message})], lines)


@pytest.mark.setting("strict_asks")
async def test_a_question_that_is_not_declared_fails_the_call_only_where_that_is_strict() -> None:
    lenient = await Client(make_app(__name__, redis_url=NOWHERE)).post(tool_call("ask_undeclared"))
    assert lenient.result["resultType"] == "input_required"
    strict = await Client(make_app(__name__, redis_url=NOWHERE, strict_asks=True)).post(tool_call("ask_undeclared"))
    assert strict.result["isError"]


@pytest.mark.setting("session_ttl_seconds")
async def test_a_session_ends_when_its_time_to_live_is_over() -> None:
    app = make_app(session_ttl_seconds=60)
    keys = app._services.keys
    began = keys.clock()
    keys.clock = lambda: began
    session = await begin_session(app)
    keys.clock = lambda: began + 59
    assert await ping(app, session) == 200
    keys.clock = lambda: began + 61
    assert await ping(app, session) == 404


@pytest.mark.setting("max_json_depth", "max_json_values")
@pytest.mark.parametrize(("depth", "values"), [(20, 0), (0, 1000)], ids=["deep", "long"])
def test_an_answer_that_another_replica_forwards_keeps_to_the_limits_of_this_one(depth: int, values: int) -> None:
    """The other replica may have larger limits."""
    take = make_app(max_json_depth=20, max_json_values=1000)._services.wires.hops._handlers[ANSWER]
    content = {"deep": msgspec.json.decode("[" * depth + "]" * depth or "0"), "long": [0] * values}
    answers = ({"action": "accept"}, {"action": "accept", "content": content})
    small, large = (msgspec.json.encode({"jsonrpc": "2.0", "id": "s1.", "result": answer}) for answer in answers)
    message = {"call": b"c" * 16, "key": "key", "authority": NOBODY}
    assert take({**message, "response": small}) == {"outcome": "late"}
    assert take({**message, "response": large}) is None


@pytest.mark.setting("max_json_depth", "max_json_values")
@pytest.mark.parametrize("inner", ["[" * 20 + "]" * 20, str([0] * 1000)], ids=["deep", "long"])
def test_a_call_that_waited_reads_answers_within_the_limits_of_json(inner: str) -> None:
    body = f'{{"jsonrpc":"2.0","id":"s1.","result":{{"content":{inner}}}}}'.encode()
    large, small = make_app(), make_app(max_json_depth=20, max_json_values=1000)
    for version in LEGACY_VERSIONS:
        assert calls_of(large, version)._read(body) == {"result": {"content": msgspec.json.decode(inner)}}
        with pytest.raises(RpcError):
            calls_of(small, version)._read(body)


def calls_of(app: GatewayApp, version: str) -> Any:
    """Return what answers calls of a handshake version."""
    return app._services.wires.dispatcher._handshake.versions[version]._calls


@pytest.mark.setting("max_json_depth", "max_json_values")
@pytest.mark.parametrize(("depth", "values", "status"), [(20, 0, 400), (0, 1000, 400), (5, 100, 200)])
async def test_a_body_keeps_to_the_limits_of_json(depth: int, values: int, status: int) -> None:
    app = make_app(max_json_depth=20, max_json_values=1000)
    deep = msgspec.json.decode("[" * depth + "]" * depth or "0")
    message = tool_call("echo", {"text": "x"}, _meta={**META, "deep": deep, "long": [0] * values})
    assert (await Client(app).post(message)).status == status


@pytest.mark.setting("max_json_depth", "max_json_values")
@pytest.mark.parametrize("inner", ["[" * 20 + "]" * 20, str([0] * 1000)], ids=["deep", "long"])
async def test_a_refusal_names_no_request_of_a_body_beyond_the_limits_of_json(inner: str) -> None:
    dispatcher = make_app(max_json_depth=20, max_json_values=1000)._services.wires.dispatcher
    caller: Any = await make_verifier(Settings.load({"GATEWAY_AUTH": "none"}), Telemetry()).authenticate(None)
    body = '{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":%s}}'
    error = InProgress()
    assert dispatcher.refuse((body % "0").encode(), error, caller).request_id == 7
    assert dispatcher.refuse((body % inner).encode(), error, caller).request_id is None


@pytest.mark.setting("max_answers")
async def test_a_request_with_more_answers_than_the_limit_is_refused() -> None:
    app = make_app(max_answers=2)
    state = (await Client(app).post(tool_call("greet"))).state
    for count, status in ((2, 200), (3, 400)):
        answers = {f"other{number}": {"action": "decline"} for number in range(count)}
        refused = await Client(app).post(tool_call("greet", requestState=state, inputResponses=answers))
        assert refused.status == status
    assert "more than 2 entries" in refused.message["error"]["message"]


@pytest.mark.setting("state_max_bytes")
async def test_a_call_that_collects_more_than_a_state_holds_fails() -> None:
    app = make_app(state_max_bytes=2048)
    assert (await Client(app).post(tool_call("hoard", {"size": 100}))).state
    assert (await Client(app).post(tool_call("hoard", {"size": 5000}))).result["isError"]


@pytest.mark.setting("state_max_bytes")
async def test_a_state_over_the_limit_is_rejected_unread(caplog: pytest.LogCaptureFixture) -> None:
    """Another replica had a larger limit."""
    key = new_key()
    call = tool_call("hoard", {"size": 5000})
    call["params"]["requestState"] = (await Client(make_app(seal_keys=key)).post(call)).state
    assert (await Client(make_app(seal_keys=key, state_max_bytes=2048)).post(call)).status == 400
    assert (await Client(make_app(seal_keys=key)).post(call)).status == 200


@pytest.mark.setting("leg_seconds")
async def test_a_tool_that_runs_too_long_fails() -> None:
    answer = await asyncio.wait_for(Client(make_app(leg_seconds=0.01)).post(tool_call("linger")), 20)
    assert answer.result["isError"]


@pytest.mark.setting("answer_seconds", "state_ttl_seconds")
@pytest.mark.parametrize("name", ["answer_seconds", "state_ttl_seconds"])
def test_a_call_of_a_session_waits_for_its_answer_no_longer_than_it_may(name: str) -> None:
    given: dict[str, Any] = {name: 7}
    app = make_app(**given)
    handshake: Any = app._services.wires.dispatcher._handshake
    calls = handshake.versions[LEGACY]._calls
    assert calls._seconds_for(SimpleNamespace(journal=SimpleNamespace(deadline_ms=1e15))) == 7


@pytest.mark.setting("rate_limit")
async def test_a_caller_over_its_rate_is_refused() -> None:
    app = make_app(rate_limit="1/h burst 2")
    assert [(await Client(app).post(tool_call("echo", {"text": "x"}))).status for _ in range(3)] == [200, 200, 429]


@pytest.mark.setting("streams_per_principal")
async def test_a_caller_with_as_many_streams_as_it_may_have_gets_no_other() -> None:
    app = make_app(streams_per_principal=1)
    listen = request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    first = Client(app)
    listening = asyncio.create_task(first.post(listen))
    await until(lambda: first.sent)
    assert (await Client(app).post(listen)).status == 429
    app.leave()
    assert (await listening).status == 200


@pytest.mark.parametrize(
    "option",
    [
        pytest.param("name", marks=pytest.mark.setting("server_name")),
        pytest.param("title", marks=pytest.mark.setting("server_title")),
        pytest.param("version", marks=pytest.mark.setting("server_version")),
        pytest.param("instructions", marks=pytest.mark.setting("server_instructions")),
        pytest.param("website_url", marks=pytest.mark.setting("server_website_url")),
        pytest.param("icons", marks=pytest.mark.setting("server_icons")),
    ],
)
def test_a_setting_about_the_server_wins_over_the_word_of_a_tool_module(option: str) -> None:
    given, expected = WORDS[option]
    settings = Settings.load({f"GATEWAY_SERVER_{option.upper()}": given})
    said: Any = type("Said", (), {"fields": msgspec.structs.asdict(SAID)})
    assert identity_of(settings, said) == msgspec.structs.replace(SAID, **{option: expected})


@pytest.mark.setting("shed_input_requests")
@pytest.mark.parametrize("given", [True, False])
def test_a_shed_leg_has_an_empty_list_of_questions_where_clients_need_one(given: bool) -> None:
    result = make_app(shed_input_requests=given)._services.wires._released_words.shed("s")
    assert ("inputRequests" in result) == given


@pytest.mark.setting("hide_task_tools", "redis_url")
async def test_tools_that_run_only_as_tasks_are_hidden_from_clients_without_tasks() -> None:
    for hides in (True, False):
        app = make_app(__name__, redis_url=NOWHERE, hide_task_tools=hides)
        meta = {**META, META_CAPABILITIES: {}}
        listed = (await Client(app).post(request("tools/list", {"_meta": meta}))).result["tools"]
        session = {"mcp-session-id": await begin_session(app), "mcp-protocol-version": LEGACY}
        in_session = (await send(app, {"method": "tools/list"}, **session)).result["tools"]
        for tools in (listed, in_session):
            assert ("run_later" in {each["name"] for each in tools}) == (not hides)


@pytest.mark.setting("immediate_wait_ms")
def test_a_call_on_the_draft_wire_waits_for_its_task_as_long_as_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    class Noting(TaskAnswers):
        def __init__(self, *parts: Any, immediate_seconds: float, **more: Any) -> None:
            given.append(immediate_seconds)
            super().__init__(*parts, immediate_seconds=immediate_seconds, **more)

    monkeypatch.setattr(assembly, "TaskAnswers", Noting)
    make_app(redis_url=NOWHERE, immediate_wait_ms=1234)
    assert given == [1.234]


@pytest.mark.setting(
    "task_max_ttl_seconds",
    "tasks_per_principal",
    "task_bytes_per_principal",
    "task_max_argument_bytes",
    "leg_seconds",
)
def test_every_limit_of_tasks_comes_from_its_setting() -> None:
    settings = Settings.load(
        {
            "GATEWAY_TASK_MAX_TTL_SECONDS": "7",
            "GATEWAY_TASKS_PER_PRINCIPAL": "8",
            "GATEWAY_TASK_BYTES_PER_PRINCIPAL": "9000",
            "GATEWAY_TASK_MAX_ARGUMENT_BYTES": "10000",
            "GATEWAY_LEG_SECONDS": "11",
        }
    )
    expected = TaskLimits(
        ttl_ms=7000, per_principal=8, bytes_per_principal=9000, max_argument_bytes=10_000, leg_ms=11_000
    )
    assert replica._task_limits(settings) == expected


@pytest.mark.setting("state_ttl_seconds", "flow_max_seconds", "state_max_bytes")
def test_every_limit_of_calls_that_ask_comes_from_its_setting() -> None:
    settings = Settings.load({}, state_ttl_seconds=7, flow_max_seconds=8, state_max_bytes=9000)
    assert replica._flow_limits(settings) == FlowLimits(7, 8, 9000)


@pytest.mark.setting("max_inflight", "queue_target_ms")
def test_the_load_of_a_replica_is_limited_as_it_is_set() -> None:
    load: Any = replica._load(Settings.load({}, max_inflight=3, queue_target_ms=2000))
    assert (load.limit, load.shedding.target_seconds) == (3, 2)


@pytest.mark.setting(
    "redis_url", "task_partitions", "task_max_ttl_seconds", "task_max_result_bytes", "task_lease_seconds", "replica_id"
)
async def test_the_task_store_is_used_as_it_is_set() -> None:
    environ = {
        "GATEWAY_SEAL_KEYS": new_key(),
        "GATEWAY_AUDIENCE": "tests",
        "GATEWAY_REDIS_URL": NOWHERE,
        "GATEWAY_TASK_PARTITIONS": "3",
        "GATEWAY_TASK_MAX_TTL_SECONDS": "7",
        "GATEWAY_TASK_MAX_RESULT_BYTES": "2000",
        "GATEWAY_TASK_LEASE_SECONDS": "9",
        "GATEWAY_REPLICA_ID": "w1",
    }
    settings, telemetry = Settings.load(environ), Telemetry()
    keys = services.make_key_holder(settings)
    store, queue = (
        services.make_task_store(settings, services.redis_url_of(settings), keys, telemetry),
        services.make_work_queue(settings, services.redis_url_of(settings), keys, telemetry),
    )
    assert store is not None
    for used in (store, queue):
        assert used._keys.partitions == 3
        assert used._deployment._max_ttl_ms == 7000
        assert used._records._max_value_bytes == 2000
        await used.aclose()
    assert (queue._lease_ms, queue._worker_id) == (9000, "w1")


@pytest.mark.setting("audit_log", "audit_log_required", "log_format", "replica_id")
@pytest.mark.parametrize("form", ["json", "text"])
def test_the_audit_log_is_written_as_it_is_set(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "audit"
    environ = {"GATEWAY_AUDIT_LOG": str(file), "GATEWAY_AUDIT_LOG_REQUIRED": "on", "GATEWAY_LOG_FORMAT": form}
    opened = services.make_audit_log(Settings.load({**environ, "GATEWAY_REPLICA_ID": "r7"}))
    assert opened.log._is_writable is not None
    assert isinstance(opened.close, functools.partial)
    assert opened.close.args[0].keeps
    opened.log.refused(InProgress(), None)
    opened.close()
    line = file.read_text()
    assert line.startswith("{") == (form == "json")
    assert "r7" in line or form == "text"
    nothing = services.make_audit_log(Settings.load({"GATEWAY_AUDIT_LOG": "off"}))
    nothing.log.refused(InProgress(), None)
    nothing.close()
    assert list(tmp_path.iterdir()) == [file]


def test_refused_requests_leave_room_for_the_lines_of_calls_while_the_audit_log_is_stuck(tmp_path: Path) -> None:
    pipe = tmp_path / "audit"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    opened = services.make_audit_log(
        Settings.load({"GATEWAY_AUDIT_LOG": str(pipe), "GATEWAY_AUDIT_LOG_REQUIRED": "on"})
    )
    for _ in range(20_000):
        opened.log.refused(InProgress(), None, method="tools/call", target="x" * 256)
    lost = opened.lost()
    assert lost > 0
    for number in range(1000):
        opened.log.leg(None, "tools/call", "kept", flow=str(number), leg=1, outcome="completed", seconds=0.0)
    assert opened.lost() == lost
    os.set_blocking(reader, True)
    with os.fdopen(reader) as lines:
        closing = threading.Thread(target=opened.close)
        closing.start()
        assert sum("kept" in line for line in lines) == 1000
        closing.join()


@pytest.mark.setting("allowed_hosts", "allowed_origins", "replica_url", "peers")
def test_only_named_hosts_and_origins_are_served_at_an_open_address() -> None:
    settings = Settings.load(
        {},
        allowed_hosts="mcp.example.com",
        allowed_origins="https://app.example.com",
        replica_url="http://r1:8080",
        peers="http://r2:8080",
    )
    policy = _origin_policy(settings, "0.0.0.0")
    for host in (b"mcp.example.com", b"r1:8080", b"r2:8080"):
        policy.check(Headers([(b"host", host), (b"origin", b"https://app.example.com")]))
    for host, origin in ((b"evil.example", b"https://app.example.com"), (b"r1:8080", b"https://evil.example")):
        with pytest.raises(HttpRefusal):
            policy.check(Headers([(b"host", host), (b"origin", origin)]))


@pytest.mark.setting("drain_notice_seconds", "drain_seconds", "trusted_proxies", "replica_header", "replica_id")
def test_a_server_drains_and_trusts_as_it_is_set() -> None:
    app = make_app(drain_notice_seconds=7, drain_seconds=8, trusted_proxies="10.0.0.0/8", replica_id="r7")
    server: Any = make_server(app._services, app)
    assert (server._notice_seconds, server._drain_seconds) == (7, 8)
    assert "10.1.2.3" in server.config.app.trusted_hosts
    headers, _ = server._rules.callbacks.write_refusal(Refusal(400, "no"), [])
    assert (b"x-gateway-replica", b"r7") in headers
    app = make_app(replica_header=False)
    silent: Any = make_server(app._services, app)
    headers, _ = silent._rules.callbacks.write_refusal(Refusal(400, "no"), [])
    assert b"x-gateway-replica" not in dict(headers)
    assert not hasattr(silent.config.app, "trusted_hosts")


@pytest.mark.setting("jwt_leeway_seconds", "jwt_claims", "jwt_algorithms")
async def test_tokens_are_verified_as_it_is_set() -> None:
    environ = {"GATEWAY_JWT_SECRET": SECRET, "GATEWAY_AUDIENCE": "tests"}
    more = {"GATEWAY_JWT_LEEWAY_SECONDS": "500", "GATEWAY_JWT_CLAIMS": "team"}
    now = 1_800_000_000.0
    token = mint(SECRET, "ada", "tests", ttl_seconds=60, now=now, claims={"team": "red"})
    patient = make_verifier(Settings.load({**environ, **more}), Telemetry(), clock=lambda: now + 400)
    caller = await patient.authenticate(f"Bearer {token}")
    assert caller.principal is not None
    assert caller.principal.claims == {"team": "red"}
    strict = make_verifier(
        Settings.load({**environ, "GATEWAY_JWT_LEEWAY_SECONDS": "0"}), Telemetry(), clock=lambda: now + 61
    )
    with pytest.raises(HttpRefusal):
        await strict.authenticate(f"Bearer {token}")


@pytest.mark.setting("jwks_refresh_seconds")
def test_the_keys_of_a_provider_are_read_as_often_as_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {}

    class Noted(UrlKeys):
        def __init__(self, *given: Any, **options: Any) -> None:
            made.update(options)
            super().__init__(*given, **options)

    monkeypatch.setattr("gateway.auth.verifier.UrlKeys", Noted)
    environ = {"GATEWAY_JWKS_URL": "https://id.example.com/jwks", "GATEWAY_JWT_ISSUER": "https://id.example.com"}
    make_verifier(Settings.load({**environ, "GATEWAY_JWKS_REFRESH_SECONDS": "7", "GATEWAY_AUDIENCE": "x"}), Telemetry())
    assert made["refresh_seconds"] == 7


@pytest.mark.setting("jwt_algorithms", "jwt_secret")
def test_tokens_are_signed_with_the_algorithms_that_are_set() -> None:
    assert Settings.load({}, jwt_algorithms="ES256").token_algorithms == ("ES256",)
    assert Settings.load({}, jwt_secret=SECRET).token_algorithms == ("HS256",)


@pytest.mark.setting("max_body_bytes")
async def test_a_larger_body_than_the_limit_is_refused() -> None:
    app = make_app(max_body_bytes=2000)
    sizes = {1000: 200, 3000: 413}
    assert {size: (await Client(app).post(tool_call("echo", {"text": "x" * size}))).status for size in sizes} == sizes


@pytest.mark.setting("max_body_bytes", "max_unanswered_bytes")
def test_messages_of_other_replicas_and_the_memory_for_bodies_fit_the_largest_body() -> None:
    small, large = make_app(max_body_bytes=2000)._services, make_app(max_body_bytes=2**25)._services
    assert small.neighbours._max_bytes < 10_000_000 < large.neighbours._max_bytes
    assert small.wires.hops._max_bytes < 10_000_000 < large.wires.hops._max_bytes
    assert large.callers._bodies.share == 2**25
    assert (small.waiting.max_bytes, large.waiting.max_bytes) == (2000, 2**25)
    assert make_app(max_unanswered_bytes=2**22)._services.callers._bodies.share == 2**20


@pytest.mark.setting("replica_id")
async def test_a_replica_has_its_name_in_legs_and_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[str] = []
    monkeypatch.setattr(replica, "make_tracing", named.append)
    app = make_app(__name__, redis_url=NOWHERE, replica_id="r7")
    assert named == ["r7"]
    assert (await Client(app).post(tool_call("name_replica"))).text == "r7"
    monkeypatch.setattr(tracing, "Traces", lambda replica_id: replica_id)
    assert str(services.make_tracing("r7", {"OTEL_TRACES_EXPORTER": "otlp"})) == "r7"


@pytest.mark.setting("show_errors")
async def test_a_client_sees_what_failed_where_that_is_on() -> None:
    for shows in (True, False):
        app = make_app(__name__, redis_url=NOWHERE, show_errors=shows)
        failed = await Client(app).post(tool_call("break_down"))
        assert ("out of paper" in failed.text) == shows


@pytest.mark.setting("metrics_port")
def test_a_replica_counts_tasks_only_if_it_has_metrics() -> None:
    assert [make_app(metrics_port=port)._counts_tasks for port in ("off", "0")] == [False, True]


@pytest.mark.setting("metrics_host", "metrics_port")
@pytest.mark.parametrize("port", ["9091", "off"])
def test_a_replica_serves_metrics_where_it_is_set(port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[tuple[str, int]] = []

    def start(_registry: object, host: str, number: int, _sock: object) -> Any:
        served.append((host, number))
        return SimpleNamespace(url="", stop=lambda: None)

    monkeypatch.setattr(process_app, "start_metrics_server", start)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(
        process_app, "make_server", lambda *_, **__: SimpleNamespace(run=lambda sockets: None, force_exit=False)
    )
    environ = {**SERVED, "GATEWAY_METRICS_HOST": "127.0.0.2", "GATEWAY_METRICS_PORT": port}
    with socket.create_server(("127.0.0.1", 0)) as sock:
        assert process_app.serve(Settings.load(environ), sock) == 0
    assert served == ([] if port == "off" else [("127.0.0.2", 9091)])


@pytest.mark.setting("tools")
def test_a_replica_watches_its_tools_if_it_reloads_them() -> None:
    app = GatewayApp(make_app()._services, reload=True)
    assert app._reloader is not None
    assert app._reloader._names == ("tests.integration.tools",)


@pytest.mark.setting("holders", "peers", "replica_url")
def test_a_replica_sends_requests_to_the_holders_unless_it_is_one() -> None:
    kinds = set[str]()
    receiver: Any = SimpleNamespace(handle=lambda kind, _handler: kinds.add(kind))
    sender: Any = None

    def made(**values: Any) -> Holder:
        return replica._hold(Settings.load({}, **values), ReplicaAddress("http://h-0", bytes(16)), sender, receiver)

    holders = made(holders="http://h-0,http://h-1").holders
    assert holders is not None
    assert holders.urls == ("http://h-0", "http://h-1")
    assert kinds == {KIND, LISTEN, HELLO}
    assert made().holders is None
    assert [made(**{name: "http://r2"}).is_one_of_many for name in ("peers", "replica_url")] == [True, True]
    assert not made().is_one_of_many


@pytest.mark.setting("peers", "replica_url")
def test_a_replica_sends_to_its_peers_but_not_to_itself() -> None:
    settings = Settings.load({}, peers="http://r1:8080,http://r2:8080", replica_url="http://r1:8080")
    (peers,) = replica._carriers(settings, None, HopClient(), Telemetry())
    assert isinstance(peers, Peers)
    assert peers._urls == ("http://r2:8080",)
    assert replica._carriers(Settings.load({}), None, HopClient(), Telemetry()) == []


@pytest.mark.setting("auth", "max_connections", "max_unread_bytes")
def test_a_server_shares_its_connections_among_callers_it_knows() -> None:
    for settings, streams in (({"auth": "jwt", "jwt_secret": SECRET}, 5), ({}, 1000)):
        app = make_app(max_connections=10, streams_per_principal=1000, max_unread_bytes=2**21, **settings)
        server: Any = make_server(app._services, app)
        assert app._services.callers._streams.limit == streams
        assert server._rules.unread_answers._max_bytes == 2**21


@pytest.mark.setting("auth")
async def test_without_identity_nobody_can_list_tasks() -> None:
    app = make_app(__name__, redis_url=NOWHERE)
    params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    begun = await send(app, {"method": "initialize", "params": params})
    assert "list" not in begun.result["capabilities"]["tasks"]


@pytest.mark.setting("jwt_secret", "jwks_file", "auth")
async def test_a_check_names_how_tokens_are_verified(tmp_path: Path) -> None:
    assert "shared secret" in await inspect_provider(Settings.load({}, jwt_secret=SECRET))
    file = tmp_path / "jwks.json"
    file.write_bytes(key_set(SigningKey("one")))
    settings = Settings.load({}, jwks_file=str(file), jwt_issuer="https://id.example")
    assert await inspect_provider(settings) == "1 key to verify tokens with"
    client = {"URL": "http://127.0.0.1:9/token", "CLIENT_ID": "me", "CLIENT_SECRET": "hunter2"}
    given = {f"GATEWAY_TOKEN_EXCHANGE_{name}": value for name, value in client.items()}
    assert await inspect_exchange(Settings.load(given, auth="none")) is None


@pytest.mark.setting("jwt_issuer")
async def test_a_token_of_another_issuer_is_refused() -> None:
    settings = Settings.load({}, jwt_secret=SECRET, audience="tests", jwt_issuer="https://id.example")
    verify = make_verifier(settings, Telemetry())
    await verify.authenticate(f"Bearer {mint(SECRET, 'ada', 'tests', issuer='https://id.example')}")
    with pytest.raises(HttpRefusal):
        await verify.authenticate(f"Bearer {mint(SECRET, 'ada', 'tests', issuer='https://other.example')}")
