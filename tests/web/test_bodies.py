"""Large bodies count until their requests are answered, and nothing keeps them in memory longer than it needs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from gateway.admission.bodies import EXTRA_BYTES
from gateway.auth.tokens import mint
from gateway.http.shortcut import SHORTCUT
from gateway.process.app import GatewayApp
from gateway.protocol.strict_json import weight
from gateway.web.bodies import QUICK_BYTES, QUICK_COMMAS, SMALL_BYTES
from tests.asgi import Client, make_app, raw_headers
from tests.integration.raw import Answer, request, tool_call
from tests.security.hostile_bodies import KINDS
from tests.waiting import until
from tests.web.holding_tools import GATE

SECRET = "a secret that only these tests know, 32 bytes"
LARGEST = 2**17
SHARE = 2**18
TOTAL = 4 * SHARE


@pytest.fixture
def app() -> Iterator[GatewayApp]:
    GATE.clear()
    app = make_app(
        "tests.web.holding_tools",
        auth="jwt",
        jwt_secret=SECRET,
        max_body_bytes=LARGEST,
        max_unanswered_bytes=TOTAL,
    )
    yield app
    assert app._services.callers._bodies.held_bytes == 0
    assert (app._services.load.in_flight, app._services.load.waiting) == (0, 0)


def bearer(user: str) -> str:
    return f"Bearer {mint(SECRET, user, 'tests')}"


def body_of(message: dict[str, Any], size: int) -> bytes:
    """Return a message of exactly this size."""
    message["params"]["_meta"] = {**message["params"].get("_meta", {}), "x": ""}
    body = msgspec.json.encode(message)
    return body.replace(b'"x":""', b'"x":"' + b"a" * (size - len(body)) + b'"')


async def send(
    app: GatewayApp,
    message: dict[str, Any],
    size: int,
    user: str,
    *,
    chunks: int = 1,
    declared: bool = True,
    **more: str,
) -> Answer:
    body = body_of(message, size)
    step = -(-len(body) // chunks)
    headers = raw_headers(message, authorization=bearer(user), **more)
    if declared:
        headers.append((b"content-length", str(len(body)).encode()))
    return await Client(app).send([body[start : start + step] for start in range(0, len(body), step)], headers)


def hold(app: GatewayApp, user: str, size: int, **options: Any) -> asyncio.Task[Answer]:
    return asyncio.create_task(send(app, tool_call("hold", {}), size, user, **options))


async def until_held(app: GatewayApp, size: int) -> None:
    await until(lambda: app._services.callers._bodies.held_bytes == size)


def echo(app: GatewayApp, user: str, size: int, **options: Any) -> Any:
    return send(app, tool_call("echo", {"text": "hello"}), size, user, **options)


@pytest.mark.setting("max_unanswered_bytes")
@pytest.mark.parametrize("declared", [True, False], ids=["length", "chunked"])
async def test_a_caller_over_its_share_is_refused_and_nobody_else(app: GatewayApp, declared: bool) -> None:
    held = [hold(app, "greedy", LARGEST, declared=declared, chunks=4) for _ in range(2)]
    await until_held(app, SHARE)
    answer = await echo(app, "greedy", SMALL_BYTES + 1, declared=declared)
    assert answer.error == (503, -31001)
    assert answer.headers["retry-after"] == "1"
    assert answer.message["id"] is None
    assert (await echo(app, "greedy", SMALL_BYTES)).text == "hello" if declared else True
    assert (await echo(app, "other", LARGEST, declared=declared)).text == "hello"
    GATE.set()
    assert [answer.status for answer in await asyncio.gather(*held)] == [200, 200]
    assert (await echo(app, "greedy", LARGEST, declared=declared)).text == "hello"


async def test_a_body_over_the_share_is_not_read(app: GatewayApp) -> None:
    held = [hold(app, "greedy", LARGEST) for _ in range(2)]
    await until_held(app, SHARE)
    message = tool_call("echo", {"text": "hello"})
    client = Client(app)
    headers = [*raw_headers(message, authorization=bearer("greedy")), (b"content-length", b"%d" % LARGEST)]
    assert (await client.send([b"{"], headers)).error == (503, -31001)
    assert client.asked_for == 0
    GATE.set()
    await asyncio.gather(*held)


async def test_a_slow_body_counts_with_what_it_declares_and_one_of_unknown_length_with_what_has_come(
    app: GatewayApp,
) -> None:
    message = tool_call("echo", {"text": "hello"})

    async def trickle(headers: list[tuple[bytes, bytes]]) -> None:
        first = True

        async def receive() -> dict[str, Any]:
            nonlocal first
            if first:
                first = False
                return {"type": "http.request", "body": b"a" * 100, "more_body": True}
            await asyncio.Event().wait()
            raise AssertionError

        async def ignore(_: Any) -> None:
            pass

        scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": headers, "client": ("127.0.0.1", 1)}
        await app._endpoint(scope, receive, ignore)

    headers = raw_headers(message, authorization=bearer("slow"))
    declared = asyncio.create_task(trickle([*headers, (b"content-length", b"5000")]))
    await until_held(app, 5000)
    unknown = asyncio.create_task(trickle(headers))
    await until_held(app, 5100)
    for task in (declared, unknown):
        task.cancel()
        await asyncio.wait([task])


async def test_messages_that_are_never_refused_are_served_over_the_share(app: GatewayApp) -> None:
    held = [hold(app, "greedy", LARGEST) for _ in range(2)]
    await until_held(app, SHARE)
    discovered = await send(app, request("server/discover", {}), QUICK_BYTES, "greedy")
    assert "supportedVersions" in discovered.result
    opening = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
    }
    begun = await send_plain(app, opening, QUICK_BYTES)
    session = {"mcp-session-id": begun.headers["mcp-session-id"]}
    notice = {"jsonrpc": "2.0", "method": "notifications/initialized", "params": {}}
    assert (await send_plain(app, notice, QUICK_BYTES, **session)).status == 202
    answer = {"jsonrpc": "2.0", "id": "x", "result": {"x": ""}}
    assert (await send_plain(app, answer, SMALL_BYTES + 1, **session)).status == 202
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "a"}}}
    refused = await send_plain(app, call, QUICK_BYTES, **session)
    assert (refused.status, refused.message["id"], refused.message["error"]["code"]) == (200, 7, -31001)
    unread = await send_plain(app, call, QUICK_BYTES + 1, **session)
    assert (unread.status, unread.message["id"], unread.message["error"]["code"]) == (503, None, -31001)
    GATE.set()
    await asyncio.gather(*held)


async def send_plain(app: GatewayApp, message: dict[str, Any], size: int, **more: str) -> Answer:
    """Send a message of a handshake wire, whose headers do not name its method."""
    body = (
        body_of(message, size)
        if "params" in message
        else msgspec.json.encode(message).replace(b'"x":""', b'"x":"' + b"a" * size + b'"')
    )
    headers = [(b"host", b"127.0.0.1:8080"), (b"content-type", b"application/json")]
    headers += [(b"accept", b"application/json, text/event-stream"), (b"authorization", bearer("greedy").encode())]
    headers += [(name.encode(), value.encode()) for name, value in more.items()]
    return await Client(app).send([body], [*headers, (b"content-length", str(len(body)).encode())])


async def test_a_body_that_may_take_long_to_decode_waits_for_its_turn_and_others_do_not(app: GatewayApp) -> None:
    assert (await echo(app, "ada", SMALL_BYTES)).text == "hello"
    patience = app._endpoint._patience
    assert patience is not None
    waiting = [asyncio.create_task(patience.turns.resume(None)) for _ in range(500)]
    large = asyncio.create_task(echo(app, "ada", QUICK_BYTES + 1))
    await until_held(app, QUICK_BYTES + 1)
    assert (await echo(app, "ada", QUICK_BYTES)).text == "hello"
    assert not large.done()
    assert (await large).text == "hello"
    assert all(turn.done() for turn in waiting)


@pytest.mark.parametrize(("values", "waits"), [(QUICK_COMMAS - 20, False), (QUICK_COMMAS + 1, True)])
async def test_a_body_of_many_values_waits_for_its_turn(app: GatewayApp, values: int, waits: bool) -> None:
    assert (await echo(app, "ada", SMALL_BYTES)).text == "hello"
    patience = app._endpoint._patience
    assert patience is not None
    waiting = [asyncio.create_task(patience.turns.resume(None)) for _ in range(500)]
    call = tool_call("echo", {"text": "hello"})
    call["params"]["_meta"] = {**call["params"].get("_meta", {}), "numbers": [1] * values}
    dense = asyncio.create_task(send(app, call, 10_000, "ada"))
    await asyncio.wait({dense, waiting[50]}, return_when=asyncio.FIRST_COMPLETED)
    assert dense.done() is not waits
    assert (await dense).text == "hello"
    await asyncio.gather(*waiting)


async def test_a_large_body_of_a_caller_over_its_rate_waits_for_its_turn_too() -> None:
    app = make_app(
        "tests.web.holding_tools", auth="jwt", jwt_secret=SECRET, max_body_bytes=LARGEST, rate_limit="1/h burst 1"
    )
    ping = {"jsonrpc": "2.0", "id": 7, "method": "ping", "params": {"x": ""}}
    await send_plain(app, ping, SMALL_BYTES)
    patience = app._endpoint._patience
    assert patience is not None
    waiting = [asyncio.create_task(patience.turns.resume(None)) for _ in range(500)]
    large = asyncio.create_task(send_plain(app, ping, QUICK_BYTES + 1))
    assert (await send_plain(app, ping, QUICK_BYTES)).error[1] == -31003
    assert not large.done()
    assert (await large).error[1] == -31003
    assert all(turn.done() for turn in waiting)


def dense(size: int, where: str = "_meta") -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Return a call of `hold` whose body has about so many bytes of lists, and its headers."""
    message = tool_call("hold", {})
    place: dict[str, Any] = {**message["params"].get(where, {})}
    message["params"][where] = place
    place["x"] = msgspec.Raw(KINDS["arrays 90 deep"].filled(size).encode())
    body = msgspec.json.encode(message)
    headers = raw_headers(tool_call("hold", {}), authorization=bearer("greedy"))
    return body, [*headers, (b"content-length", b"%d" % len(body))]


@pytest.mark.parametrize("size", [SMALL_BYTES, 60 * 1024])
async def test_a_body_of_many_values_counts_as_what_it_takes_when_decoded(app: GatewayApp, size: int) -> None:
    body, headers = dense(size)
    holding = asyncio.create_task(Client(app).send([body], headers))
    await asyncio.wait_for(GATE.held.wait(), 10)
    assert app._services.callers._bodies.held_bytes == weight(body) > 3 * size
    GATE.set()
    assert (await holding).status == 200


@pytest.mark.parametrize("where", ["arguments", "_meta", "inputResponses"])
async def test_a_caller_whose_values_take_its_share_is_refused_and_nobody_else(app: GatewayApp, where: str) -> None:
    first, headers = dense(60 * 1024)
    holding = asyncio.create_task(Client(app).send([first], headers))
    await asyncio.wait_for(GATE.held.wait(), 10)
    body, headers = dense(60 * 1024, where)
    assert (await Client(app).send([body], headers)).error == (503, -31001)
    assert (await echo(app, "other", LARGEST)).text == "hello"
    GATE.set()
    assert (await holding).status == 200


async def test_a_body_that_takes_more_than_a_share_is_served_alone(app: GatewayApp) -> None:
    body, headers = dense(LARGEST - 1024)
    assert weight(body) > SHARE
    holding = asyncio.create_task(Client(app).send([body], headers))
    await asyncio.wait_for(GATE.held.wait(), 10)
    assert app._services.callers._bodies.held_bytes == SHARE
    GATE.set()
    assert (await holding).status == 200


async def test_small_messages_that_are_never_refused_count_above_the_share_and_end_at_an_allowance(
    app: GatewayApp,
) -> None:
    held = [hold(app, "greedy", LARGEST) for _ in range(2)]
    await until_held(app, SHARE)
    never = asyncio.Event()
    body = body_of(request("server/discover", {}), QUICK_BYTES)
    headers = raw_headers(request("server/discover", {}), authorization=bearer("greedy"))
    headers.append((b"content-length", b"%d" % len(body)))

    async def arriving() -> dict[str, Any]:
        await never.wait()
        raise AssertionError

    async def ignore(_: Any) -> None:
        pass

    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": headers, "client": ("127.0.0.1", 1)}
    most = EXTRA_BYTES  # in all, because nothing of the budget is left then
    count = (most - SHARE) // QUICK_BYTES
    slow = [asyncio.create_task(app._endpoint(dict(scope), arriving, ignore)) for _ in range(count)]
    await until_held(app, most)
    assert (await Client(app).send([body], headers)).error == (503, -31001)
    assert "supportedVersions" in (await send(app, request("server/discover", {}), QUICK_BYTES, "other")).result
    for task in slow:
        task.cancel()
    await asyncio.wait(slow)
    assert "supportedVersions" in (await send(app, request("server/discover", {}), QUICK_BYTES, "greedy")).result
    GATE.set()
    await asyncio.gather(*held)


class Whole:
    """The way of our own server: the body in one piece."""

    def __init__(self, body: bytes, last_values: dict[bytes, bytes]) -> None:
        self._body: bytes | None = body
        self.last_values = last_values
        self.task = asyncio.current_task()

    def body(self) -> bytes | None:
        body, self._body = self._body, None
        return body

    def respond(self, *_: Any) -> bool:
        return False


async def test_nothing_keeps_a_body_that_came_whole_while_its_call_runs(app: GatewayApp) -> None:
    body = body_of(tool_call("hold", {}), LARGEST)
    alone = sys.getrefcount(body)
    headers = raw_headers(tool_call("hold", {}), authorization=bearer("ada"))
    client = Client(app)

    async def with_shortcut(scope: Any, receive: Any, send: Any) -> None:
        scope[SHORTCUT] = Whole(body, dict(headers))
        await app(scope, receive, send)

    client.app = with_shortcut
    holding = asyncio.create_task(client.send([], headers))
    await until_held(app, LARGEST)
    await asyncio.wait_for(GATE.held.wait(), 10)
    assert sys.getrefcount(body) == alone
    GATE.set()
    assert (await holding).status == 200


async def test_nothing_keeps_a_body_while_its_call_runs(app: GatewayApp) -> None:
    body = body_of(tool_call("hold", {}), LARGEST)
    alone = sys.getrefcount(body)
    headers = raw_headers(tool_call("hold", {}), authorization=bearer("ada"))
    parts = [body]
    holding = asyncio.create_task(Client(app).send(parts, [*headers, (b"content-length", b"%d" % LARGEST)]))
    await until_held(app, LARGEST)
    await asyncio.wait_for(GATE.held.wait(), 10)
    parts.clear()
    assert sys.getrefcount(body) == alone
    GATE.set()
    assert (await holding).status == 200
