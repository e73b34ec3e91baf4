"""Beside ASGI events: a whole request body, and a whole response, in one call each, and exempt connections."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from gateway.http.asgi import RawHeaders

SHORTCUT: Final = "gateway.http.shortcut"
"""The key in the ASGI scope of a request's `Shortcut`. Other servers do not have it."""


class Shortcut(Protocol):
    """One request and its response, each in one piece.

    `task` answers the request. `last_values` has the last value of each of its headers, by the name in lower case.
    """

    task: asyncio.Task[None] | None
    last_values: dict[bytes, bytes]

    def body(self) -> bytes | None:
        """Return the body, or None while it is not complete. It is returned only once."""
        ...

    def respond(self, status: int, headers: RawHeaders, body: bytes) -> bool:
        """Send a whole response. If that would have to wait, return False and send nothing."""
        ...

    @property
    def is_exempt(self) -> bool:
        """Whether `exempt` was called for the connection, and there was room."""
        ...

    def exempt(self) -> None:
        """Stop counting the connection among those of clients, because another process of ours has made it."""
        ...
