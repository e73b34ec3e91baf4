"""Failures of HTTP requests."""

from __future__ import annotations

from enum import StrEnum

from gateway.errors import GatewayError


class HttpReason(StrEnum):
    """Why a request has no response."""

    UNREACHABLE = "unreachable"
    REFUSED_ADDRESS = "refused_address"
    BUSY = "busy"
    """All connections stayed in use."""
    TIMED_OUT = "timed_out"
    CUT = "cut"
    """The connection ended before the response was complete."""
    TOO_LARGE = "too_large"
    MALFORMED = "malformed"
    """The response is not valid HTTP/1.1, or has a form that is not accepted."""


class HttpFailure(GatewayError):
    """A request has no complete response.

    Attributes:
        sent: whether the server may have received the request, and so may have acted.
        detail: for the log; it contains no secret and nothing that only the server said.
        nobody_listens: whether the address is there, and refuses connections.
    """

    def __init__(self, reason: HttpReason, *, sent: bool, detail: str, nobody_listens: bool = False) -> None:
        super().__init__(f"{reason.value}: {detail}")
        self.reason = reason
        self.sent = sent
        self.detail = detail
        self.nobody_listens = nobody_listens
