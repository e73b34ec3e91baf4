"""What the server offers beside ASGI's events: a whole request at once, and a whole answer."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from gateway.http.asgi import RawHeaders

SHORTCUT: Final = "gateway.http.shortcut"
"""Where the scope of a request holds its `Shortcut`. Other servers have none."""


class Shortcut(Protocol):
    """One request and its answer, each in one piece.

    Attributes:
        task: what answers the request.
        last_values: the last value of each header of the request, by its name in lower case.
    """

    task: asyncio.Task[None] | None
    last_values: dict[bytes, bytes]

    def body(self) -> bytes | None:
        """Return the body, once: None while it is not complete."""
        ...

    def respond(self, status: int, headers: RawHeaders, body: bytes) -> bool:
        """Send a whole answer; return False, and send nothing, if that has to wait."""
        ...
