"""Situations that people who run MCP servers report, from a request to its answer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import jwt
import msgspec
import pytest

from gateway import tool
from gateway.process.app import GatewayApp
from tests.asgi import HOST, Client, make_app
from tests.integration.raw import Answer, request, tool_call

SECRET = "0123456789abcdef0123456789abcdef"
PAGE = "https://chat.example.com"
URL = "https://mcp.example.com"
JSON = (b"content-type", b"application/json")
ACCEPT = (b"accept", b"application/json, text/event-stream")
SESSION = b"mcp-session-id"


@tool
async def tree(depth: int = 3, root: str | None = None) -> str:
    """Return what the tool got; no argument is required."""
    return f"{depth} {root}"


@tool(scopes=["bugs:read"])
async def bugs() -> str:
    """Return the bugs."""
    return "none"


@pytest.fixture
def app() -> GatewayApp:
    return make_app(__name__, allowed_origins=(PAGE,))


async def send(app: GatewayApp, message: Mapping[str, Any], *headers: tuple[bytes, bytes]) -> Answer:
    return await Client(app).send([msgspec.json.encode(message)], [HOST, JSON, ACCEPT, *headers])


async def begin(app: GatewayApp, version: str, *headers: tuple[bytes, bytes]) -> Answer:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    return await send(app, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}, *headers)


def text(answer: Answer) -> str:
    return str(answer.result["content"][0]["text"])


@pytest.mark.parametrize("given", [{}, {"arguments": {}}, {"arguments": None}], ids=["absent", "empty", "null"])
async def test_a_tool_without_required_arguments_is_called_without_any(app: GatewayApp, given: Any) -> None:
    """Agents in Go and editors leave `arguments` out, and others send null."""
    assert text(await Client(app).post(request("tools/call", {"name": "tree", **given}))) == "3 None"


@pytest.mark.parametrize("given", [{"depth": None}, {"root": None}, {"depth": None, "root": None}])
async def test_null_for_an_argument_means_that_it_was_left_out(app: GatewayApp, given: Any) -> None:
    """Agents with a strict schema fill in null for all that the model does not set."""
    assert text(await Client(app).post(tool_call("tree", given))) == "3 None"


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_each_older_version_is_answered_with_itself(app: GatewayApp, version: str) -> None:
    """A client of an older version leaves if it is answered with a newer one."""
    assert (await begin(app, version)).result["protocolVersion"] == version


@pytest.mark.parametrize("version", ["2099-01-01", "1.0", ""])
async def test_a_version_that_nobody_knows_is_not_echoed(app: GatewayApp, version: str) -> None:
    """Otherwise the client finds out in the middle of its work that the server does not speak it."""
    assert (await begin(app, version)).result["protocolVersion"] == "2025-11-25"


@pytest.mark.parametrize("header", [b"2025-11-25", b"2025-03-26", b"2099-01-01"])
async def test_the_header_of_the_version_does_not_stop_the_negotiation(app: GatewayApp, header: bytes) -> None:
    """Some clients send the version that they propose in the header of `initialize` too."""
    answer = await begin(app, "2025-06-18", (b"mcp-protocol-version", header))
    assert (answer.status, answer.result["protocolVersion"]) == (200, "2025-06-18")


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_page_reads_the_answer_to_every_method_that_a_client_sends(
    app: GatewayApp, path: str, method: str
) -> None:
    """Client libraries try GET first, and DELETE last; without CORS headers, the page gets an exception."""
    answer = await Client(app).send([b""], [HOST, (b"origin", PAGE.encode())], method=method, path=path)
    assert answer.headers["access-control-allow-origin"] == PAGE


async def test_a_preflight_allows_each_header_that_client_libraries_send(app: GatewayApp) -> None:
    """The header of the version comes only after `initialize`, so half a handshake worked."""
    wanted = "authorization, content-type, last-event-id, mcp-method, mcp-name, mcp-protocol-version, mcp-session-id"
    asked = [
        HOST,
        (b"origin", PAGE.encode()),
        (b"access-control-request-method", b"POST"),
        (b"access-control-request-headers", wanted.encode()),
    ]
    answer = await Client(app).send([b""], asked, method="OPTIONS")
    allowed = {name.strip().lower() for name in answer.headers["access-control-allow-headers"].split(",")}
    assert set(wanted.split(", ")) <= allowed


async def test_a_page_reads_a_refusal_for_want_of_a_token() -> None:
    """It needs the challenge to know where to log in."""
    app = make_app(__name__, allowed_origins=(PAGE,), auth="jwt", jwt_secret=SECRET, public_url=URL)
    body = msgspec.json.encode(request("tools/list"))
    answer = await Client(app).send([body], [HOST, JSON, ACCEPT, (b"origin", PAGE.encode())])
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (401, PAGE)
    assert "www-authenticate" in answer.headers["access-control-expose-headers"].lower()


@pytest.mark.parametrize("session", [b"5eeee047-3200-47c4-aa9b-6dfba1c71a9b", b"x", b"s" * 1000])
async def test_a_session_of_another_server_is_answered_so_that_clients_begin_a_new_one(
    app: GatewayApp, session: bytes
) -> None:
    """After a restart, 400, 409, 500 and 503 left clients without a session until somebody restarted them."""
    listing = {"jsonrpc": "2.0", "id": "n7", "method": "tools/list"}
    answer = await send(app, listing, (SESSION, session), (b"mcp-protocol-version", b"2025-11-25"))
    assert (answer.status, answer.message["id"], answer.message["error"]["code"]) == (404, "n7", -32001)


async def test_the_audit_log_says_from_where_a_session_that_nobody_knows_came(app: GatewayApp) -> None:
    """A client that keeps trying with one can be found, although nobody knows whose it is."""
    lines: list[bytes] = []
    app._services.audit._write_refused = lines.append
    await send(app, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, (SESSION, b"x"))
    assert [b" client=127.0.0.1" in line for line in lines] == [True]


@pytest.mark.parametrize(
    "claims",
    [
        {"scp": "bugs:read openid"},
        {"scp": ["openid", "bugs:read"]},
        {"scope": ["bugs:read"]},
        {"scope": "bugs:read", "scp": "openid"},
    ],
    ids=str,
)
@pytest.mark.parametrize("audience", [URL, f"{URL}/", f"{URL}:443/", "HTTPS://MCP.example.com", [f"{URL}/", "other"]])
async def test_tokens_of_large_providers_grant_what_they_say(claims: Mapping[str, Any], audience: Any) -> None:
    """Scopes come in two claims and two types, and audiences with a slash that nobody wrote."""
    app = make_app(__name__, auth="jwt", jwt_secret=SECRET, jwt_audience=URL)
    given = {"sub": "ada", "iss": "https://id.example.com", "aud": audience, "exp": int(time.time()) + 60, **claims}
    token = (b"authorization", b"Bearer " + jwt.encode(given, SECRET, "HS256").encode())
    headers = [token, (b"mcp-protocol-version", b"2026-07-28"), (b"mcp-method", b"tools/call"), (b"mcp-name", b"bugs")]
    assert text(await send(app, tool_call("bugs"), *headers)) == "none"
