"""An MCP server that is as cheap as one in Python can be, to stand behind gateways. It only echoes."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from bench.peers.serving import serve

VERSION = "2026-07-28"
CACHED = {"resultType": "complete", "ttlMs": 300_000, "cacheScope": "public"}
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class _Params(msgspec.Struct):
    arguments: dict[str, Any] = {}


class _Request(msgspec.Struct):
    method: str
    id: Any = None
    params: _Params = msgspec.field(default_factory=_Params)


_decode = msgspec.json.Decoder(_Request).decode
_encode = msgspec.json.Encoder().encode
_names = ["echo", *(f"echo_{number:04d}" for number in range(1, int(sys.argv[2])))]
_results: dict[str, dict[str, Any]] = {
    "server/discover": {**CACHED, "supportedVersions": [VERSION], "capabilities": {"tools": {}}},
    "tools/list": {
        **CACHED,
        "tools": [{"name": name, "description": "Say the text again.", "inputSchema": SCHEMA} for name in _names],
    },
}


async def app(
    _scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    """Answer one request."""
    body, more = b"", True
    while more:
        event = await receive()
        body, more = body + event.get("body", b""), event.get("more_body", False)
    request = _decode(body) if body else _Request("")
    result = _results.get(request.method) or {
        "resultType": "complete",
        "content": [{"type": "text", "text": request.params.arguments.get("text", "")}],
    }
    answer = _encode({"jsonrpc": "2.0", "id": request.id, "result": result})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


if __name__ == "__main__":
    serve(app, lifespan="off")
