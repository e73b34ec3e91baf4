"""The requests in sessions that this process is working on, so that clients can cancel them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Self
from weakref import WeakValueDictionary

from gateway.ensured import ensured


class Cancelled(Exception):
    """The client has cancelled its request, so there is nothing to answer."""


class CancellableStream:
    """The messages of an answer. They end early if the client cancels its request."""

    def __init__(self, messages: AsyncIterator[bytes]) -> None:
        self._messages = messages
        self._reader: asyncio.Task[object] | None = None
        self._cancelled = False

    def __aiter__(self) -> Self:
        """Return this stream."""
        return self

    async def __anext__(self) -> bytes:
        """Return the next message."""
        if self._is_cancelled():
            raise StopAsyncIteration
        reader = self._reader = asyncio.current_task()
        try:
            return await anext(self._messages)
        except asyncio.CancelledError:
            if self._is_cancelled() and reader is not None and reader.uncancel() == 0:
                raise StopAsyncIteration from None
            raise
        finally:
            self._reader = None

    def _is_cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        """End the stream after the message that is being written."""
        if not self._cancelled:
            self._cancelled = True
            if self._reader is not None:
                self._reader.cancel()

    async def aclose(self) -> None:
        """Close the source of the messages."""
        await self._messages.aclose()  # type: ignore[attr-defined]  # an async generator


class RunningRequests:
    """The asyncio tasks and streams of the requests in progress."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[object]] = {}
        self._cancelled: set[asyncio.Task[object]] = set()
        self._streams: WeakValueDictionary[str, CancellableStream] = WeakValueDictionary()

    @contextlib.contextmanager
    def running(self, request: str) -> Iterator[None]:
        """Allow `cancel` to cancel the current asyncio task while the context is open.

        See `gateway.tokens.session_ids.request_digest` for the name of the request and its session. If the request was
        cancelled, `Cancelled` is raised when the context ends.
        """
        task = ensured(asyncio.current_task(), "requests are served in tasks")
        self._tasks[request] = task
        try:
            yield
        except asyncio.CancelledError:
            if task in self._cancelled and task.uncancel() == 0:
                raise Cancelled from None
            raise
        finally:
            self._cancelled.discard(task)
            if self._tasks.get(request) is task:
                del self._tasks[request]

    def stream(self, request: str, messages: AsyncIterator[bytes]) -> CancellableStream:
        """Return the messages that answer a request (see `running`), as a stream that `cancel` can end."""
        stream = CancellableStream(messages)
        self._streams[request] = stream
        return stream

    def cancel(self, request: str) -> bool:
        """Cancel a request or the stream that answers it, and return whether this process works on one of them."""
        stream = self._streams.get(request)
        if stream is not None:
            stream.cancel()
        task = self._tasks.get(request)
        if task is not None and task not in self._cancelled:
            self._cancelled.add(task)
            task.cancel()
        return task is not None or stream is not None
