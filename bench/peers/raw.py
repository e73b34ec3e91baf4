"""The floor: uvicorn with an application that reads the body and returns one fixed JSON-RPC result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from bench.cases import RAW_BODY
from bench.peers.serving import serve

START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(RAW_BODY)).encode())],
}
END = {"type": "http.response.body", "body": RAW_BODY}


async def app(
    _scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    """Read the whole request, answer the fixed response."""
    while (await receive()).get("more_body"):
        pass
    await send(START)
    await send(END)


if __name__ == "__main__":
    serve(app, lifespan="off")
