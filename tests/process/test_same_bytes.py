"""`gateway serve` sends `/mcp` past the router of the FastAPI application. The route returns the same bytes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, MutableMapping
from typing import Any

import msgspec
import pytest
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

import gateway
from gateway.process.app import GatewayApp
from gateway.tokens.hop_messages import HOP_PATH
from gateway.web.hop import HOP_TYPE
from loadtest.cluster import new_key
from tests.asgi import HOST, Client, RawHeaders, make_app, raw_headers
from tests.integration.raw import request, tool_call
from tests.integration.streams import ACCEPT_BOTH, calling
from tests.waiting import until

pytestmark = pytest.mark.slow

KEY = new_key()
SECRET = "0123456789abcdef0123456789abcdef"
ELSEWHERE = (b"host", b"elsewhere.example.com")
PAGE = (b"origin", b"http://localhost:3000")
THEIRS = (b"origin", b"https://evil.example.com")
ECHO = tool_call("echo", {"text": "hello"})
LEGACY = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
}
Request = tuple[str, str, RawHeaders, bytes]


def sent(message: Mapping[str, Any], **headers: str) -> Request:
    return "POST", "/mcp", raw_headers(message, **headers), msgspec.json.encode(message)


REQUESTS: Mapping[str, Request] = {
    "a call": sent(ECHO),
    "a question": sent(tool_call("greet")),
    "an unknown tool": sent(tool_call("nothing")),
    "a tool that fails": sent(tool_call("add_one", {"number": "x"})),
    "an unknown method": sent(request("nothing/here")),
    "a list": sent(request("tools/list")),
    "discovery": sent(request("server/discover")),
    "a session": ("POST", "/mcp", [HOST, (b"content-type", b"application/json")], msgspec.json.encode(LEGACY)),
    "no JSON": ("POST", "/mcp", [HOST, (b"content-type", b"application/json")], b"{"),
    "no body": ("POST", "/mcp", [HOST, (b"content-type", b"application/json")], b""),
    "another content type": ("POST", "/mcp", [HOST, (b"content-type", b"text/plain")], b"{}"),
    "another host": ("POST", "/mcp", [ELSEWHERE], b"{}"),
    "two hosts": ("POST", "/mcp", [HOST, HOST], b"{}"),
    "another origin": ("POST", "/mcp", [HOST, THEIRS], b"{}"),
    "a page": ("POST", "/mcp", [*raw_headers(ECHO), PAGE], msgspec.json.encode(ECHO)),
    "a preflight": ("OPTIONS", "/mcp", [HOST, PAGE], b""),
    "a large body": ("POST", "/mcp", raw_headers(ECHO), b" " * 5000),
    "a large length": ("POST", "/mcp", [*raw_headers(ECHO), (b"content-length", b"5000")], b"{}"),
    **{f"{method} of /mcp": (method, "/mcp", [HOST], b"") for method in ("GET", "DELETE", "OPTIONS", "HEAD", "PUT")},
    **{
        f"POST of {path!r}": ("POST", path, raw_headers(ECHO), msgspec.json.encode(ECHO))
        for path in ("/mcp//", "//mcp", "/MCP", "/mcp\n", "/mcp%0A", "/%6dcp", "/mcp/x", "/", "", "mcp", HOP_PATH)
    },
    "a message of nobody": ("POST", HOP_PATH, [HOST, (b"content-type", HOP_TYPE)], b"x" * 100),
    "GET of the path of messages": ("GET", HOP_PATH, [HOST], b""),
    "a health check": ("GET", "/healthz", [ELSEWHERE], b""),
    "readiness": ("GET", "/readyz", [HOST], b""),
    "nothing": ("GET", "/nothing", [HOST], b""),
}


@pytest.fixture(autouse=True)
def _time_and_chance_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make seals the same each time."""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    monkeypatch.setattr(os, "urandom", bytes)


def make(**settings: Any) -> GatewayApp:
    return make_app(seal_keys=KEY, allowed_origins="http://localhost:3000", max_body_bytes=4096, **settings)


async def answered(app: ASGIApp, request: Request) -> tuple[int, Any, bytes]:
    """Return status, headers and body of an answer, as they are written."""
    method, path, headers, body = request
    client = Client(app)
    await client.run([body[:10], body[10:]], headers, method=method, path=path)
    return as_written(client.sent)


def as_written(events: list[MutableMapping[str, Any]]) -> tuple[int, Any, bytes]:
    start, *bodies = events
    return start["status"], start["headers"], b"".join(event.get("body", b"") for event in bodies)


async def assert_same(served: GatewayApp, routed: GatewayApp, request: Request) -> None:
    past, along = await answered(served, request), await answered(routed.site, request)
    assert past == along
    assert past[0] < 600


@pytest.mark.parametrize("name", REQUESTS)
async def test_without_identity(name: str) -> None:
    await assert_same(make(), make(), REQUESTS[name])


@pytest.mark.parametrize("name", REQUESTS)
async def test_with_identity_and_no_token(name: str) -> None:
    identity = {"auth": "jwt", "jwt_secret": SECRET, "public_url": "https://mcp.example.com"}
    await assert_same(make(**identity), make(**identity), REQUESTS[name])


@pytest.mark.parametrize("name", ["a call", "a question", "a session", "discovery"])
async def test_while_it_leaves(name: str) -> None:
    served, routed = make(), make()
    for app in (served, routed):
        app.drain()
        app.leave()
    await assert_same(served, routed, REQUESTS[name])


@pytest.mark.parametrize("name", [name for name in REQUESTS if name.startswith("POST of") and HOP_PATH not in name])
async def test_no_other_path_is_that_of_the_endpoint(name: str) -> None:
    assert (await answered(make().site, REQUESTS[name]))[0] == 404


async def test_a_call_that_reports_progress() -> None:
    call = sent(calling("work", {"release": os.devnull}, token=1, level="info"), accept=ACCEPT_BOTH)
    tools = "tests.integration.stream_tools"
    await assert_same(make(tools=tools), make(tools=tools), call)
    status, headers, body = await answered(make(tools=tools).site, call)
    assert (status, dict(headers)[b"content-type"]) == (200, b"text/event-stream")
    assert body.count(b"data: ") > 1


async def test_a_call_without_a_place_is_refused() -> None:
    served, routed = make(), make()
    for app in (served, routed):
        while app._services.load.arrive() is not None:
            pass
    await assert_same(served, routed, REQUESTS["a call"])
    assert (await answered(routed.site, REQUESTS["a call"]))[0] == 503


async def test_bodies_that_still_arrive_hold_no_place() -> None:
    """The server of `gateway serve` reports that a body is arriving; other servers do not."""
    app, arrive = make(), asyncio.Event()

    async def site(scope: Scope, receive: Receive, send: Send) -> None:
        async def receive_later() -> MutableMapping[str, Any]:
            event = await receive()
            await arrive.wait()
            return event

        await app.site(scope, receive_later, send)

    clients = [Client(site) for _ in range(2 * app._services.load.limit)]
    arriving = [asyncio.create_task(client.post(ECHO)) for client in clients]
    await until(lambda: all(client.asked_for or client.sent for client in clients))
    assert (await answered(app.site, REQUESTS["a call"]))[0] == 200
    arrive.set()
    assert {answer.status for answer in await asyncio.gather(*arriving)} <= {200, 503}


async def test_a_stream_that_is_held_until_the_replica_leaves() -> None:
    message = request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    written = []
    for app, serve in ((served := make(), served), (routed := make(), routed.site)):
        client = Client(serve)
        body = msgspec.json.encode(message)
        stream = asyncio.create_task(client.run([body], raw_headers(message, accept=ACCEPT_BOTH)))
        while len(client.sent) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        app.leave()
        await stream
        written.append(as_written(client.sent))
    assert written[0] == written[1]
    assert written[0][0] == 200


@pytest.mark.parametrize(
    "name",
    [name for name in REQUESTS if name not in {"a health check", "readiness", "nothing"} and "POST of" not in name],
)
async def test_below_the_path_of_another_application(name: str) -> None:
    """A mounted gateway answers requests to `/tools/mcp` as `gateway serve` answers those to `/mcp`."""
    settings: dict[str, Any] = {
        "seal_keys": KEY,
        "audience": "tests",
        "auth": "none",
        "replica_id": "r1",
        "max_body_bytes": 4096,
    }
    host = FastAPI()
    gateway.mount(host, "/tools", tools="tests.integration.tools", allowed_origins="http://localhost:3000", **settings)
    method, path, headers, body = REQUESTS[name]
    async with host.router.lifespan_context(host):
        below = await answered(host, (method, f"/tools{path}", headers, body))
    assert below == await answered(make(), REQUESTS[name])
