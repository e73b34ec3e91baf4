"""An MCP server that is as cheap as one in Python can be, to stand behind gateways.

Its tools echo. Three more, which no list names, break their calls. `initialize` begins a session, and a GET request
opens its stream.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from bench.peers.serving import serve
from bench.peers.upstream_tools import FAILS, HANGS, HUGE, HUGE_BYTES

VERSION = "2026-07-28"
CACHED = {"resultType": "complete", "ttlMs": 300_000, "cacheScope": "public"}
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class _Params(msgspec.Struct):
    name: str = ""
    arguments: dict[str, Any] = {}


class _Request(msgspec.Struct):
    method: str
    id: Any = None
    params: _Params = msgspec.field(default_factory=_Params)


_decode = msgspec.json.Decoder(_Request).decode
_encode = msgspec.json.Encoder().encode
_sessions = itertools.count(1)
_names = ["echo", *(f"echo_{number:04d}" for number in range(1, int(sys.argv[2])))]
_results: dict[str, dict[str, Any]] = {
    "server/discover": {**CACHED, "supportedVersions": [VERSION], "capabilities": {"tools": {}}},
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "upstream", "version": "1"},
    },
    "tools/list": {
        **CACHED,
        "tools": [{"name": name, "description": "Say the text again.", "inputSchema": SCHEMA} for name in _names],
    },
}


_Send = Callable[[dict[str, Any]], Awaitable[None]]


async def fails(send: _Send) -> None:
    """Answer with a failure."""
    await send({"type": "http.response.start", "status": 500, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


async def hangs(_send: _Send) -> None:
    """Answer nothing for a long time."""
    await asyncio.sleep(600)


async def huge(send: _Send) -> None:
    """Answer more than the gateway takes, without saying how much it will be."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    for _ in range(0, HUGE_BYTES, len(_PIECE)):
        await send({"type": "http.response.body", "body": _PIECE, "more_body": True})
    await send({"type": "http.response.body"})


_PIECE = b" " * 65536
_broken: dict[str, Callable[[_Send], Awaitable[None]]] = {FAILS: fails, HANGS: hangs, HUGE: huge}


async def stream(send: _Send) -> None:
    """Open the stream of a session, on which nothing comes."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    await send({"type": "http.response.body", "body": b": open\n\n", "more_body": True})
    await asyncio.sleep(600)


async def app(scope: dict[str, Any], receive: Callable[[], Awaitable[dict[str, Any]]], send: _Send) -> None:
    """Answer one request."""
    if scope["method"] == "GET":
        await stream(send)
        return
    body, more = b"", True
    while more:
        event = await receive()
        body, more = body + event.get("body", b""), event.get("more_body", False)
    request = _decode(body) if body else _Request("")
    if request.params.name in _broken:
        await _broken[request.params.name](send)
        return
    result = _results.get(request.method) or {
        "resultType": "complete",
        "content": [{"type": "text", "text": request.params.arguments.get("text", "")}],
    }
    answer = _encode({"jsonrpc": "2.0", "id": request.id, "result": result})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
    if request.method == "initialize":
        headers.append((b"mcp-session-id", b"%d" % next(_sessions)))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


if __name__ == "__main__":
    serve(app, lifespan="off")
