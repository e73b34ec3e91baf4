"""The callbacks of the server: it reports events, and asks how to write a refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from gateway.http.asgi import RawHeaders, Scope


class Cause(Enum):
    """The reason why the server itself refused a client."""

    BAD_HTTP = "bad_http"
    HEADERS_TOO_LARGE = "headers_too_large"
    BODY_TOO_LARGE = "body_too_large"
    SLOW_HEAD = "slow_head"
    SLOW_BODY = "slow_body"
    SLOW_READER = "slow_reader"


class Refusal(Exception):
    """A request breaks a limit or the protocol. The message is for the client, the cause for metrics."""

    def __init__(self, status: int, message: str, cause: Cause = Cause.BAD_HTTP) -> None:
        super().__init__(message)
        self.status = status
        self.cause = cause


Written: TypeAlias = tuple[RawHeaders, bytes]
"""The headers and the body of a response."""


def in_plain_text(refusal: Refusal, _received: RawHeaders) -> Written:
    """Write a refusal as plain text."""
    return [(b"content-type", b"text/plain; charset=utf-8")], str(refusal).encode()


def _ignore(*_: object) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Functions that the server calls on the event loop while it reads. They must return quickly, and must not raise.

    Attributes:
        arrived: called with the scope of a request, when its head is complete and its turn on the connection has come.
        still_arriving: called with the scope of a request, when a part of its body has arrived and more must follow.
        connection_refused: called when a connection over the limit was closed.
        client_refused: called with the cause, when a client broke a limit or the protocol.
        client_lost: called when a client has stopped acknowledging a stream, and so counts as disconnected.
        write_refusal: returns the headers and the body of the response to a refused request, of which these headers
            have arrived.
    """

    arrived: Callable[[Scope], None] = _ignore
    still_arriving: Callable[[Scope], None] = _ignore
    connection_refused: Callable[[], None] = _ignore
    client_refused: Callable[[Cause], None] = _ignore
    client_lost: Callable[[], None] = _ignore
    write_refusal: Callable[[Refusal, RawHeaders], Written] = in_plain_text
