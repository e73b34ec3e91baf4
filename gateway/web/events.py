"""A response that is a stream of Server-Sent Events, written with ASGI events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

from gateway.protocol import sse


class EventStreamWriter:
    """Writes posted messages in order, and a comment whenever the stream has been quiet for `keep_alive_seconds`.

    The headers are additional to those that every such stream has. `begun` tells whether the start of the response has
    been written. `pending_bytes` is the size of the posted messages that are not written yet.
    """

    def __init__(
        self,
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
        headers: list[tuple[bytes, bytes]],
        keep_alive_seconds: float,
    ) -> None:
        self.begun = False
        self.pending_bytes = 0
        self._send = send
        self._headers = [*sse.HEADERS, *headers]
        self._keep_alive_seconds = keep_alive_seconds
        self._pending: list[bytes] = []
        self._wake = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._ending = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start writing in a separate task."""
        if self._writer is None:
            self._writer = loop.create_task(self._write())

    def post(self, message: bytes) -> None:
        """Queue a message to be written."""
        self._pending.append(sse.event(message))
        self.pending_bytes += len(message)
        self._wake.set()

    async def _write(self) -> None:
        await self._begin()
        while True:
            if self._pending:
                chunk = b"".join(self._pending)
                self._pending.clear()
                self.pending_bytes = 0
                await self._send_chunk(chunk)
            elif self._ending:
                return
            else:
                self._wake.clear()
                try:
                    async with asyncio.timeout(self._keep_alive_seconds):
                        await self._wake.wait()
                except TimeoutError:
                    await self._send_chunk(sse.comment())

    async def drain(self) -> None:
        """Wait until all posted messages are written. Do not post more after this."""
        self._ending = True
        self._wake.set()
        if self._writer is None:
            return
        if self._writer.cancelling():  # a process that is forced to stop cancels all tasks; what waits is dropped
            await asyncio.wait((self._writer,))
        else:
            await self._writer

    async def copy(self, messages: AsyncIterator[bytes]) -> None:
        """Write messages as they come, until the source ends."""
        await self._begin()
        try:
            while (message := await self._next(messages)) is not None:
                await self._send_chunk(sse.event(message))
        finally:
            await messages.aclose()  # type: ignore[attr-defined]  # an async generator

    async def _next(self, messages: AsyncIterator[bytes]) -> bytes | None:
        upcoming = asyncio.ensure_future(anext(messages, None))
        try:
            while not (await asyncio.wait({upcoming}, timeout=self._keep_alive_seconds))[0]:
                await self._send_chunk(sse.comment())
            return upcoming.result()
        finally:
            upcoming.cancel()
            await asyncio.wait({upcoming})  # the generator can be closed only when it is not running

    async def end(self, message: bytes = b"") -> None:
        """Write the last message, if any, and the end of the stream."""
        body = sse.event(message) if message else b""
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    def cancel(self) -> None:
        """Stop writing."""
        if self._writer is not None:
            self._writer.cancel()

    async def _begin(self) -> None:
        self.begun = True
        await self._send({"type": "http.response.start", "status": 200, "headers": self._headers})

    async def _send_chunk(self, chunk: bytes) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
