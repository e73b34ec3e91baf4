"""The replies to requests, independent of HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TypeAlias

import msgspec

from gateway.errors import GatewayError
from gateway.protocol.jsonrpc import RequestId
from gateway.protocol.versions import Wire


class Answered(msgspec.Struct, frozen=True):
    """The request has a JSON-RPC response in `body`, and possibly additional response headers."""

    body: bytes
    headers: Sequence[tuple[bytes, bytes]] = ()


class Accepted(msgspec.Struct, frozen=True):
    """A notification or a response was accepted, or the request was cancelled. There is nothing to answer."""


class RefusedRequest(msgspec.Struct, frozen=True):
    """The request ends with an error. The wire decides the HTTP status; None if it is not known."""

    error: GatewayError
    request_id: RequestId | None = None
    wire: Wire | None = None


class Listening(msgspec.Struct, frozen=True):
    """The answer is a stream that stays open: JSON-RPC messages, with the response as the last one."""

    messages: AsyncIterator[bytes]
    request_id: RequestId
    wire: Wire


Reply: TypeAlias = Answered | Accepted | RefusedRequest | Listening
