"""Pure: what the gateway answers to requests of upstreams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gateway.protocol.upstream.responses import ServerRequest

_METHOD_NOT_FOUND: Final = -32601


def reply_to(asked: ServerRequest, upstream: str, roots: Sequence[str] = ()) -> dict[str, Any]:
    """Return the JSON-RPC response to a request of an upstream.

    Only directories that the operator declares are `roots`, as URIs: some servers replace what they may read by these,
    so those of a caller must never be sent. All questions to users are refused.
    """
    response: dict[str, Any] = {"jsonrpc": "2.0", "id": asked.request_id}
    if asked.method == "ping":
        return {**response, "result": {}}
    if asked.method == "roots/list":
        return {**response, "result": {"roots": [{"uri": uri} for uri in roots]}}
    text = f"This gateway passes no question of the server {upstream!r} on to a user while a call runs."
    return {**response, "error": {"code": _METHOD_NOT_FOUND, "message": text}}


def is_question(asked: ServerRequest) -> bool:
    """Return whether a request wants something of a user."""
    return asked.method not in ("ping", "roots/list")
