"""Pure: reads requests of the handshake wires, where the session has the client's capabilities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.errors import InvalidParams
from gateway.protocol.fields import read_object, read_string
from gateway.protocol.jsonrpc import MAX_ID_CHARS, Request, RequestId
from gateway.protocol.requests import McpRequest, read_progress_token
from gateway.protocol.versions import LOG_LEVELS

CANCELLED: Final = "notifications/cancelled"
"""The notification that cancels a request (2025-11-25 "Cancellation")."""

LOG_LEVEL: Final = "info"
"""The lowest level that clients get. `logging/setLevel` is acknowledged, but there is no place to store its level."""

SESSIONLESS_CAPABILITIES: Final[Mapping[str, Any]] = {
    "elicitation": {"form": {}},
    "sampling": {},
    "roots": {},
    "tasks": {"responses": {"modes": ["task", "immediate", "streaming"]}},
}
"""The assumed capabilities of a client without a session. It gets only the response modes that it requests."""


def read_request(request: Request, capabilities: Mapping[str, Any]) -> McpRequest:
    """Return a request together with the capabilities of its session, or raise `InvalidParams`."""
    meta = read_object(request.params, "_meta")
    return McpRequest(
        request,
        meta=meta,
        capabilities=dict(capabilities),
        log_level=LOG_LEVEL,
        progress_token=read_progress_token(meta),
    )


def read_opening(request: Request) -> McpRequest:
    """Return an `initialize` request. The client's capabilities are not known yet, and its `_meta` is ignored."""
    return McpRequest(request, meta={}, capabilities={}, log_level=None, progress_token=None)


def read_cancelled(params: Mapping[str, Any]) -> RequestId | None:
    """Return the id of the request that a `notifications/cancelled` names, or None.

    A notification gets no answer, so a malformed one is ignored.
    """
    request_id = params.get("requestId")
    if type(request_id) is int or (type(request_id) is str and len(request_id) <= MAX_ID_CHARS):
        return request_id
    return None


def check_set_level(params: Mapping[str, Any]) -> None:
    """Raise `InvalidParams` if the `level` of `logging/setLevel` is not a log level."""
    if read_string(params, "level") not in LOG_LEVELS:
        raise InvalidParams(f"params.level must be one of {', '.join(LOG_LEVELS)}")
