"""What the server reports to whoever runs it, and the one thing that it asks: how a refusal reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from gateway.http.asgi import RawHeaders, Scope


class Cause(Enum):
    """Why the server refused a client before, or instead of, its application."""

    BAD_HTTP = "bad_http"
    HEADERS_TOO_LARGE = "headers_too_large"
    BODY_TOO_LARGE = "body_too_large"
    SLOW_HEAD = "slow_head"
    SLOW_BODY = "slow_body"
    SLOW_READER = "slow_reader"


class Refusal(Exception):
    """A request breaks a limit or the protocol.

    Args:
        status: of the answer.
        message: why, for the client.
        cause: why, for whoever counts refusals.
    """

    def __init__(self, status: int, message: str, cause: Cause = Cause.BAD_HTTP) -> None:
        super().__init__(message)
        self.status = status
        self.cause = cause


Written: TypeAlias = tuple[RawHeaders, bytes]
"""The headers and the body of an answer."""


def in_plain_text(refusal: Refusal) -> Written:
    """Write a refusal as plain text."""
    return [(b"content-type", b"text/plain; charset=utf-8")], str(refusal).encode()


def _ignore(*_: object) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Called on the event loop, in the middle of reading: each has to return at once, and may not raise.

    Attributes:
        arrived: the head of a request is complete, and its turn on the connection has come; gets its scope.
        still_arriving: a part of its body has come and more is due; gets its scope.
        connection_refused: a connection over the limit was closed.
        client_refused: a client broke a limit or the protocol; gets the cause.
        client_lost: a client has stopped acknowledging a stream and is taken for gone.
        write_refusal: returns headers and body of the answer to a refused request.
    """

    arrived: Callable[[Scope], None] = _ignore
    still_arriving: Callable[[Scope], None] = _ignore
    connection_refused: Callable[[], None] = _ignore
    client_refused: Callable[[Cause], None] = _ignore
    client_lost: Callable[[], None] = _ignore
    write_refusal: Callable[[Refusal], Written] = in_plain_text
