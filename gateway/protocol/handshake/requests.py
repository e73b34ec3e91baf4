"""Pure: reads a request of a handshake wire, where the session says what the client can do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.errors import HeaderMismatch, InvalidParams
from gateway.protocol.fields import quote, read_object, read_string
from gateway.protocol.headers import METHOD, Headers
from gateway.protocol.jsonrpc import MAX_ID_CHARS, Request, RequestId
from gateway.protocol.requests import McpRequest, read_progress_token
from gateway.protocol.versions import LOG_LEVELS

CANCELLED: Final = "notifications/cancelled"
"""The notification that takes a request back (2025-11-25 "Cancellation")."""

LOG_LEVEL: Final = "info"
"""What is told of logs from here on: `logging/setLevel` is acknowledged, but there is nowhere to keep it."""

SESSIONLESS_CAPABILITIES: Final[Mapping[str, Any]] = {
    "elicitation": {"form": {}},
    "sampling": {},
    "roots": {},
    "tasks": {"responses": {"modes": ["task", "immediate", "streaming"]}},
}
"""What a client without a session is taken to support: of the response modes, those that it asks for."""


def read_request(request: Request, capabilities: Mapping[str, Any]) -> McpRequest:
    """Return the request with what its client can do.

    Args:
        request: as parsed.
        capabilities: those of the session.

    Raises:
        InvalidParams: `_meta`, or the progress token in it, has the wrong type.
    """
    meta = read_object(request.params, "_meta")
    return McpRequest(
        id=request.id,
        method=request.method,
        params=request.params,
        meta=meta,
        capabilities=dict(capabilities),
        log_level=LOG_LEVEL,
        progress_token=read_progress_token(meta),
    )


def read_opening(request: Request) -> McpRequest:
    """Return an `initialize` as a request: nothing is known of its client yet, and its `_meta` means nothing."""
    return McpRequest(
        id=request.id,
        method=request.method,
        params=request.params,
        meta={},
        capabilities={},
        log_level=None,
        progress_token=None,
    )


def check_method(request: Request, headers: Headers) -> None:
    """Check `Mcp-Method`, which clients of these wires need not send: who reads it there must not be misled.

    Raises:
        HeaderMismatch: it names another method than the body.
    """
    named = headers.get(METHOD)
    if named is not None and named != request.method:
        raise HeaderMismatch(
            f"Header mismatch: Mcp-Method is {quote(named)}, but the body says {quote(request.method)}"
        )


def read_cancelled(params: Mapping[str, Any]) -> RequestId | None:
    """Return the id of the request that a `notifications/cancelled` names, None where it names none.

    A notification is never answered, so one that is malformed means nothing.
    """
    request_id = params.get("requestId")
    if type(request_id) is int or (type(request_id) is str and len(request_id) <= MAX_ID_CHARS):
        return request_id
    return None


def check_set_level(params: Mapping[str, Any]) -> None:
    """Check the parameters of `logging/setLevel`.

    Raises:
        InvalidParams: `level` is none.
    """
    if read_string(params, "level") not in LOG_LEVELS:
        raise InvalidParams(f"params.level must be one of {', '.join(LOG_LEVELS)}")
