"""The hostile server in sessions: over HTTP in a thread, and on standard streams as a program.

Its tools are those of `hostile.CALLS`, and what only a server with sessions can do. The program runs as
`python -m tests.upstreams.servers.hostile_sessions`. It writes a line where the other one writes a body or an event.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, cast

import msgspec
from typing_extensions import override

from tests.upstreams.servers.hostile import CALLS, ECHO, Hostile, Json, Mode, response, text
from tests.upstreams.servers.plain_http import Exchange, Pair

INITIALIZED = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "hostile", "version": "1"},
}
QUESTION = {"jsonrpc": "2.0", "id": "mine", "method": "elicitation/create", "params": {"message": "Name?"}}


async def question_first(exchange: Exchange, request_id: Json) -> None:
    """Ask before the answer, and do not wait."""
    exchange.event(QUESTION)
    exchange.event(response(request_id, text("asked anyway")))
    exchange.end_events()


async def question_later(exchange: Exchange, request_id: Json) -> None:
    """Ask for a call that has ended."""
    exchange.event(response(request_id, text("the answer")))
    exchange.event(QUESTION)
    exchange.end_events()


async def next_answer_too(exchange: Exchange, request_id: Json) -> None:
    """Answer this request, and the next one before it is asked."""
    exchange.event(response(request_id, text("the answer")))
    exchange.event(response(request_id + 1, text("to no question")))
    exchange.end_events()


async def bad_utf8_alone(exchange: Exchange, _request_id: Json) -> None:
    """Send bytes that are not UTF-8 in the place of a message, and end."""
    exchange.begin_events()
    exchange.chunk(b"data: \xff\xfe\xfa\n\n")
    exchange.cut()


SESSION_CALLS: Mapping[str, Mode] = {
    **CALLS,
    "question_first": question_first,
    "question_later": question_later,
    "next_answer_too": next_answer_too,
    "bad_utf8_alone": bad_utf8_alone,
}
TOOLS = [{**ECHO, "name": name} for name in SESSION_CALLS]
HTTP_ALONE = frozenset(
    {"redirect", "redirect_307", "unauthorized", "forbidden", "missing", "failed", "bad_gateway", "unavailable"}
    | {"too_many", "wrong_type", "accepted", "huge_chunked", "unzipped", "endless_head", "half_body", "endless_body"}
    | {"endless_comments", "ended_stream", "silent_stream", "huge_event", "half_event", "half_event_cut"}
)
"""Tools that break a rule of HTTP or of event streams."""


class HostileSession(Hostile):
    """The server over HTTP. It has one session, and no stream for it."""

    @override
    async def handle(self, exchange: Exchange) -> None:
        if exchange.method != "POST" or exchange.path != "/mcp":
            self.followed += exchange.path != "/mcp"
            exchange.reply(405)
            return
        message = msgspec.json.decode(exchange.body)
        if "method" not in message or "id" not in message:
            exchange.reply(202)
        elif message["method"] == "initialize":
            exchange.json(response(message["id"], INITIALIZED), headers=[("mcp-session-id", "hostile")])
        elif message["method"] == "server/discover":
            error = {"code": -32600, "message": "Bad Request: Missing session ID"}
            exchange.json({"jsonrpc": "2.0", "id": message["id"], "error": error}, 400)
        else:
            self.asked.append(named(message))
            await mode_of(message)(exchange, message["id"])


def named(message: Json) -> str:
    """Return the method, and the tool of a call."""
    name = message["params"].get("name", "") if message["method"] == "tools/call" else ""
    return f"{message['method']} {name}".strip()


def mode_of(message: Json) -> Mode:
    """Return what answers a request in a session."""
    if message["method"] == "tools/call":
        return SESSION_CALLS[message["params"]["name"]]
    result = {"tools": TOOLS} if message["method"] == "tools/list" else {}

    async def answer(exchange: Exchange, request_id: Json) -> None:
        exchange.json(response(request_id, result))

    return answer


class Lines:
    """Takes the place of an exchange: each message is a line on the standard output."""

    gone = False
    begun = True

    def reply(self, _status: int, body: bytes = b"", _headers: Iterable[Pair] = ()) -> None:
        self.raw(body + b"\n")

    def json(self, message: Any, _status: int = 200) -> None:
        self.raw(msgspec.json.encode(message) + b"\n")

    event = json

    def head(self, _status: int, _headers: Iterable[Pair]) -> None:
        """There is none."""

    def begin_events(self) -> None:
        """There are none."""

    def end_events(self) -> None:
        """There are none."""

    def chunk(self, data: bytes) -> None:
        self.raw(data)

    def raw(self, data: bytes) -> None:
        while data:
            data = data[os.write(1, data) :]

    async def drain(self) -> None:
        await asyncio.sleep(0)

    def cut(self) -> None:
        os._exit(7)


async def answer_line(message: Json) -> None:
    exchange = cast("Exchange", Lines())
    if message["method"] == "initialize":
        exchange.json(response(message["id"], INITIALIZED))
    else:
        await mode_of(message)(exchange, message["id"])


def main() -> None:
    """Serve on standard streams. A request that is cancelled ends."""
    loop, running = asyncio.new_event_loop(), dict[Any, Future[None]]()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    for line in sys.stdin.buffer:
        message = msgspec.json.decode(line)
        if message.get("method") == "notifications/cancelled":
            running[message["params"]["requestId"]].cancel()
        elif "method" in message and "id" in message:
            running[message["id"]] = asyncio.run_coroutine_threadsafe(answer_line(message), loop)


if __name__ == "__main__":
    main()
