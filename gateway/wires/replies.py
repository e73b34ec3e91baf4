"""What a request is answered with, before it is HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TypeAlias

import msgspec

from gateway.errors import GatewayError
from gateway.protocol.jsonrpc import RequestId
from gateway.protocol.versions import Wire


class Answered(msgspec.Struct, frozen=True):
    """The request has a JSON-RPC response, `body`, and perhaps further response headers."""

    body: bytes
    headers: Sequence[tuple[bytes, bytes]] = ()


class Accepted(msgspec.Struct, frozen=True):
    """A notification or a response was taken, or the request was cancelled: there is nothing to answer."""


class Refused(msgspec.Struct, frozen=True):
    """The request ends in an error.

    Attributes:
        error: what the client is told.
        request_id: None where no id could be read.
        wire: decides what HTTP status tells it, None where that is not known.
    """

    error: GatewayError
    request_id: RequestId | None = None
    wire: Wire | None = None


class Listening(msgspec.Struct, frozen=True):
    """The request is answered by a stream that stays open: JSON-RPC messages, the response last."""

    messages: AsyncIterator[bytes]
    request_id: RequestId


Reply: TypeAlias = Answered | Accepted | Refused | Listening
