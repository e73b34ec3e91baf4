"""The other pages of a replica besides the MCP endpoint, and who may read them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.web.endpoint import ARRIVAL
from loadtest.cluster import wait_until
from tests.asgi import HOST, Client, RawHeaders, make_app, raw_headers
from tests.identity import ISSUER
from tests.integration.raw import Answer, tool_call

SECRET = "0123456789abcdef0123456789abcdef"
PUBLIC: dict[str, Any] = {
    "auth": "jwt",
    "jwt_secret": SECRET,
    "jwt_issuer": ISSUER,
    "public_url": "https://mcp.example.com/tools",
    "allowed_origins": "https://app.example.com",
}
ROOT = "/.well-known/oauth-protected-resource"
PATHS = [ROOT, f"{ROOT}/mcp", f"{ROOT}/tools/mcp", f"{ROOT}/", f"{ROOT}/mcp/", f"{ROOT}/tools/mcp/"]
DOCUMENT = {
    "resource": "https://mcp.example.com/tools/mcp",
    "authorization_servers": [ISSUER],
    "bearer_methods_supported": ["header"],
}
OURS = (b"origin", b"https://app.example.com")
THEIRS = (b"origin", b"https://evil.example.com")
ELSEWHERE = (b"host", b"rebound.example.com")

app_with = functools.cache(make_app)
"""The application with these settings, which no test changes."""


async def get(path: str, headers: RawHeaders = (HOST,), method: str = "GET", **settings: Any) -> Answer:
    return await Client(app_with(**{**PUBLIC, **settings})).send([b""], headers, method=method, path=path)


@pytest.mark.parametrize("path", PATHS)
async def test_the_metadata_is_at_each_place_where_clients_look(path: str) -> None:
    answer = await get(path)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert msgspec.json.decode(answer.body) == DOCUMENT


async def test_the_metadata_names_the_scopes_of_what_is_served(tmp_path: Any, monkeypatch: Any) -> None:
    (tmp_path / "scoped_tools.py").write_text(
        "from gateway import tool, prompt\n"
        "@tool(scopes=['write', 'read'])\n"
        "async def change() -> str:\n    '''Change.'''\n    return ''\n"
        "@prompt(scopes=['read', 'prompts'])\n"
        "async def plan() -> str:\n    '''Plan.'''\n    return ''\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    answer = await get(ROOT, tools="scoped_tools")
    assert msgspec.json.decode(answer.body)["scopes_supported"] == ["prompts", "read", "write"]


@pytest.mark.parametrize("settings", [{"auth": "none", "jwt_secret": None}, {"public_url": None}])
@pytest.mark.parametrize("path", PATHS)
async def test_there_is_no_metadata_without_identity_or_public_url(path: str, settings: dict[str, Any]) -> None:
    assert (await get(path, **settings)).status == 404


@pytest.mark.setting("public_url")
async def test_a_401_says_where_the_metadata_is() -> None:
    answer = await Client(make_app(**PUBLIC)).post(tool_call("echo", {"text": "x"}))
    assert answer.status == 401
    url = "https://mcp.example.com/.well-known/oauth-protected-resource/tools/mcp"
    assert answer.headers["www-authenticate"] == f'Bearer realm="mcp", resource_metadata="{url}"'


@pytest.mark.parametrize("path", [ROOT, "/", "/nothing", "/mcp/", "//mcp", "/docs", "/openapi.json"])
@pytest.mark.parametrize("headers", [(ELSEWHERE,), (), (HOST, THEIRS), (HOST, (b"origin", b"null"))])
async def test_other_hosts_and_origins_are_refused_everywhere(path: str, headers: RawHeaders) -> None:
    app = app_with(**PUBLIC)
    for method in ("GET", "POST", "OPTIONS", "HEAD"):
        answer = await Client(app).send([b""], headers, method=method, path=path)
        assert answer.status == 403
        assert "access-control-allow-origin" not in answer.headers
        assert answer.headers["content-length"] == str(len(answer.body))


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
@pytest.mark.parametrize("headers", [(ELSEWHERE,), (), (HOST, THEIRS)])
async def test_health_checks_are_answered_for_any_host_and_origin(path: str, headers: RawHeaders) -> None:
    assert (await get(path, headers)).status == 200


UNKNOWN = ["/", "/nothing", "/mcp//", "/MCP", "/mcp/x", "/docs", "/openapi.json", "/.well-known/other", ROOT + "/x"]


@pytest.mark.parametrize("path", UNKNOWN)
async def test_an_unknown_path_is_404_and_names_the_endpoint(path: str) -> None:
    answer = await get(path)
    assert answer.status == 404
    assert answer.headers["content-type"] == "application/json"
    assert "https://mcp.example.com/tools/mcp" in msgspec.json.decode(answer.body)["detail"]
    unnamed = await get(path, public_url=None)
    assert msgspec.json.decode(unnamed.body)["detail"].endswith(" POST /mcp")


@pytest.mark.parametrize(("path", "status"), [*((path, 404) for path in UNKNOWN), (ROOT, 405)])
async def test_a_post_beside_the_endpoint_is_a_json_rpc_error_that_names_it(path: str, status: int) -> None:
    answer = await Client(app_with(**PUBLIC)).send([b"{}"], (HOST, OURS), path=path)
    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["access-control-allow-origin"] == "https://app.example.com"
    message = msgspec.json.decode(answer.body)
    assert (message["jsonrpc"], message["id"], message["error"]["code"]) == ("2.0", None, -32600)
    assert "https://mcp.example.com/tools/mcp" in message["error"]["message"]
    assert ("allow" in answer.headers) == (status == 405)


async def test_the_endpoint_with_a_slash_is_the_same_endpoint() -> None:
    client = Client(app_with(**PUBLIC))
    body = [msgspec.json.encode(tool_call("echo", {"text": "hello"}))]
    refused = await client.send(body, raw_headers(tool_call("echo", {"text": "hello"})), path="/mcp/")
    assert (refused.status, "www-authenticate" in refused.headers) == (401, True)
    answer = await Client(app_with()).send(body, raw_headers(tool_call("echo", {"text": "hello"})), path="/mcp/")
    assert (answer.status, answer.text) == (200, "hello")
    assert (await get("/mcp/")).status == 405
    preflight = await get("/mcp/", (HOST, OURS), "OPTIONS")
    assert (preflight.status, preflight.headers["access-control-allow-methods"]) == (204, "GET, POST, DELETE")


async def test_a_request_with_a_slash_has_a_place_among_the_others() -> None:
    app = make_app()
    scope: dict[str, Any] = {"path": "/mcp/", "method": "POST", "headers": []}
    app.arrived(scope)
    assert scope[ARRIVAL].visit is not None
    scope[ARRIVAL].step_aside()
    scope[ARRIVAL].visit.leave()


async def test_an_allowed_page_reads_that_only_this_machine_is_served() -> None:
    client = Client(app_with(auth="none", allowed_origins="https://app.example.com"), server=("192.0.2.1", 8080))
    answer = await client.send([b""], (HOST, OURS), method="GET", path="/x")
    assert (answer.status, answer.headers.get("access-control-allow-origin")) == (403, OURS[1].decode())


async def test_two_hosts_are_a_bad_request() -> None:
    assert (await get(ROOT, (HOST, HOST))).status == 400


async def test_web_pages_of_allowed_origins_may_read_the_metadata() -> None:
    answer = await get(ROOT, (HOST, OURS))
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == "https://app.example.com"
    assert "origin" in answer.headers["vary"]
    asked = (b"access-control-request-headers", b"mcp-protocol-version")
    preflight = await get(ROOT, (HOST, OURS, asked), "OPTIONS")
    assert preflight.status == 204
    assert "GET" in preflight.headers["access-control-allow-methods"]
    assert preflight.headers["access-control-allow-headers"] == "mcp-protocol-version"
    assert preflight.headers["access-control-allow-origin"] == "https://app.example.com"


async def test_the_metadata_can_only_be_read() -> None:
    assert (await get(ROOT, method="HEAD")).status == 200
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert (await get(ROOT, method=method)).status == 405


async def test_a_refusal_beside_the_endpoint_is_counted_and_noted(tmp_path: Path) -> None:
    audit = tmp_path / "audit"
    app = make_app(**PUBLIC, audit_log=str(audit))
    await Client(app).send([b""], (ELSEWHERE,), method="GET", path="/x")
    registry = app._services.telemetry.registry
    assert registry.get_sample_value("gateway_requests_refused_total", {"reason": "forbidden"}) == 1
    wait_until(lambda: "reason=forbidden" in audit.read_text(), "the audit line")
