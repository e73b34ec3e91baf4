"""Converts errors to HTTP responses. No other module does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.errors import GatewayError, HttpRefusal, InsufficientScope, InternalError, NotNow, RpcError
from gateway.protocol.challenges import HEADER, Challenges
from gateway.protocol.jsonrpc import RequestId, error_response

JSON: Final = (b"content-type", b"application/json")

STATUS_OF_CODE: Final[Mapping[int, int]] = {
    -32700: 400,
    -32600: 400,
    -32601: 404,
    -32602: 400,
    -32603: 500,
    -32020: 400,
    -32021: 400,
    -32022: 400,
    -31005: 400,
    -31006: 200,
}
"""The HTTP status of a JSON-RPC error on the 2026-07-28 wire. A tool author's own codes are sent with 200.

-31006 exists only in sessions. The Python SDK 1.x ends its session at any other status of an answer, except 404, by
which a server ends the session itself.
"""

STATUS_OF_LATER: Final[Mapping[int, int]] = {-31001: 503, -31003: 429, -31004: 504}
"""The HTTP status of a request that is not served now, by the code of its error.

Load balancers may retry a request that gets 503, because no part of it ran. They must not retry after 504.
"""

_INTERNAL: Final = 500

RawHeaders = list[tuple[bytes, bytes]]


_NO_CHALLENGES: Final = Challenges()


def to_http(
    error: GatewayError,
    request_id: RequestId | None,
    challenges: Challenges = _NO_CHALLENGES,
    *,
    always_ok: bool = False,
) -> tuple[int, RawHeaders, bytes]:
    """Return status, headers and body for an error.

    A refusal before JSON-RPC also has its reason as a JSON-RPC error, which every client of the protocol can show. The
    status has its usual meaning, unless `always_ok` sends every JSON-RPC error with 200. Clients of the handshake wires
    need this, because they take any other status as the end of their session or connection.
    """
    if isinstance(error, NotNow):
        retry_after = (b"retry-after", str(error.retry_after_seconds).encode())
        return 200 if always_ok else STATUS_OF_LATER[error.code], [JSON, retry_after], error_response(request_id, error)
    if isinstance(error, RpcError):
        status = 200 if always_ok else STATUS_OF_CODE.get(error.code, 200)
        if error.is_relayed and status == _INTERNAL:
            status = 200
        return status, [JSON], error_response(request_id, error)
    if isinstance(error, HttpRefusal):
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in error.headers]
        return error.status, [JSON, *headers], error_response(request_id, RpcError(error.code, str(error)))
    if isinstance(error, InsufficientScope):
        challenge = challenges.insufficient_scope(str(error), error.required, error.granted)
        headers = [(HEADER.encode("latin-1"), challenge.encode("latin-1"))]
        return 403, [JSON, *headers], error_response(request_id, RpcError(-32600, str(error)))
    return 200 if always_ok else 500, [JSON], error_response(request_id, InternalError("Internal error"))
