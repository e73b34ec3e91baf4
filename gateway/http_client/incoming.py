"""A response while it arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from gateway.http_client.failures import HttpFailure, HttpReason

MAX_BUFFERED_BYTES: Final = 64 * 1024
"""The connection stops reading when this much of a body waits for its reader."""


class IncomingResponse(msgspec.Struct):
    """Passes a response from its connection to its one reader.

    The connection calls `receive_head`, `receive`, `complete` and `fail`; the reader calls `head`, `piece` and
    `everything`. Headers are by lower-case name. `resume` lets the connection read again after a pause; it is None if
    it does read.
    """

    _loop: asyncio.AbstractEventLoop
    status: int = 0
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    is_complete: bool = False
    resume: Callable[[], None] | None = None
    _pieces: list[bytes] = msgspec.field(default_factory=list)
    _size: int = 0
    _waiter: asyncio.Future[None] | None = None
    _failure: tuple[HttpReason, str] | None = None

    def receive_head(self, status: int, headers: Mapping[str, str]) -> None:
        """Take the status and headers."""
        self.headers = headers
        self.status = status
        self._wake()

    def receive(self, data: bytes) -> bool:
        """Take a piece of the body; return whether the connection should stop reading."""
        self._pieces.append(data)
        self._size += len(data)
        self._wake()
        return self._size >= MAX_BUFFERED_BYTES

    def complete(self) -> None:
        """Take the end of the response."""
        self.is_complete = True
        self._wake()

    def fail(self, reason: HttpReason, detail: str) -> None:
        """End the response early; the reader gets what arrived before, then the failure."""
        if self._failure is None and not self.is_complete:
            self._failure = (reason, detail)
            self._wake()

    async def head(self) -> None:
        """Wait for status and headers. If the response ended before that, raise `HttpFailure`."""
        while not self.status:
            await self._wait()

    async def piece(self) -> bytes:
        """Return the next piece of the body; nothing after the last one.

        If the response ended early, this raises `HttpFailure`.
        """
        while not self._pieces:
            if self.is_complete:
                return b""
            await self._wait()
        return self.everything()

    def everything(self) -> bytes:
        """Return what has arrived and was not read."""
        pieces = self._pieces
        found = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._size = 0
        if self.resume is not None:
            self.resume()
            self.resume = None
        return found

    async def _wait(self) -> None:
        if self._failure is not None:
            reason, detail = self._failure
            raise HttpFailure(reason, sent=True, detail=detail)
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
