"""One HTTP request and its answer, on bare ASGI.

The answer is plain JSON unless something has to be told before it is complete: then it becomes a stream of
Server-Sent Events, whose last event is the response (2026-07-28 "Streamable HTTP", Receiving Messages).
Closing the connection cancels the request (Cancellation).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final

from gateway.http.asgi import RawHeaders, Receive, Send
from gateway.http.shortcut import Shortcut
from gateway.web.events import EventStream

NO_CONTENT: Final = 204
"""The status whose answers must not have a `Content-Length` (RFC 9110 section 8.6)."""

KEEP_ALIVE_SECONDS = 15.0
"""A stream that has been quiet this long gets a comment; a request that has been, becomes a stream for it."""

WATCH_AFTER_SECONDS = 0.02
"""Most requests are over by then, and are spared the watch for a client that goes away. Some get twice as long."""

MAX_PENDING_BYTES = 1 << 20
"""Notifications wait up to this size for a slow reader; more are dropped, as the protocol lets a server do."""


class ClientGone(Exception):
    """The client closed the connection before its request was complete."""


class BodyTooLarge(Exception):
    """The body is over the limit; the rest of it is not read."""


class Patience:
    """Waits a moment for all exchanges that have begun, with one timer: most are over by then.

    Attributes:
        loop: the event loop that all of them run on.
        thread: the thread that it runs in.
    """

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self._new: set[Exchange] = set()
        self._old: set[Exchange] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, exchange: Exchange) -> None:
        """Tell an exchange that it takes long, unless it ends before."""
        self._new.add(exchange)
        if self._timer is None:
            self._timer = self.loop.call_later(WATCH_AFTER_SECONDS, self._look)

    def end(self, exchange: Exchange) -> None:
        """Forget an exchange."""
        self._new.discard(exchange)
        self._old.discard(exchange)

    def _look(self) -> None:
        for exchange in self._old:
            exchange.takes_long()
        self._old, self._new = self._new, set()
        self._timer = self.loop.call_later(WATCH_AFTER_SECONDS, self._look) if self._old else None


class Exchange:
    """Reads one request and writes its answer.

    Args:
        receive: ASGI's.
        send: ASGI's.
        headers: sent with every answer.
        patience: waits for many exchanges at once; None for one of its own.
        shortcut: None where the server has only ASGI's events.
    """

    # Most exchanges need none of these.
    client_gone = False
    _ends_with_client = True
    _task: asyncio.Task[Any] | None = None
    _quiet: asyncio.TimerHandle | None = None
    _watcher: asyncio.Task[None] | None = None
    _events: EventStream | None = None
    _ending = False
    _stopped = False

    def __init__(
        self,
        receive: Receive,
        send: Send,
        headers: RawHeaders,
        patience: Patience | None = None,
        shortcut: Shortcut | None = None,
    ) -> None:
        self._receive = receive
        self._send = send
        self._headers = headers
        self._patience = patience or Patience()
        self._shortcut = shortcut

    def add_headers(self, headers: RawHeaders) -> None:
        """Send these headers too, whatever the answer is."""
        self._headers = [*self._headers, *headers]

    def whole_body(self) -> bytes | None:
        """Return the body if all of it is there already, which can be asked once; None if it has to be awaited."""
        return None if self._shortcut is None else self._shortcut.body()

    async def read_body(self, limit: int) -> bytes:
        """Return the body.

        Raises:
            BodyTooLarge: as soon as more than `limit` bytes came.
            ClientGone: the client went away first.
        """
        chunks: list[bytes] = []
        size = 0
        while True:
            event = await self._receive()
            if event["type"] == "http.disconnect":
                raise ClientGone
            chunk = event.get("body", b"")
            size += len(chunk)
            if size > limit:
                raise BodyTooLarge
            chunks.append(chunk)
            if not event.get("more_body", False):
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def begin(self, *, may_stream: bool, outlives_client: bool = False) -> None:
        """Watch for the client going away from now on; if it does, the current task is cancelled.

        Args:
            may_stream: whether the client takes a stream; one that hears nothing for long then gets one.
            outlives_client: let the task go on without its client, except inside `ending_with_client`.
        """
        self._ends_with_client = not outlives_client
        self._may_stream = may_stream
        self._task = asyncio.current_task() if self._shortcut is None else self._shortcut.task
        if self._task is None:
            raise RuntimeError("an exchange must run in a task")
        self._patience.begin(self)

    def takes_long(self) -> None:
        """Note that the answer takes longer than most."""
        if self._task is not None:
            self._watcher = self._patience.loop.create_task(self._wait_for_disconnect(self._task))
            if self._may_stream:
                self._quiet = self._patience.loop.call_later(KEEP_ALIVE_SECONDS, self._start_stream)

    async def _wait_for_disconnect(self, task: asyncio.Task[Any]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.client_gone = True
        self._ending = True
        if self._ends_with_client:
            task.cancel()

    @contextlib.contextmanager
    def ending_with_client(self) -> Iterator[None]:
        """Do what makes no sense without the client: if it goes away meanwhile, the current task is cancelled.

        Raises:
            ClientGone: by the context, as it is entered: the client went away before.
        """
        if self.client_gone:
            raise ClientGone
        before, self._ends_with_client = self._ends_with_client, True
        try:
            yield
        finally:
            self._ends_with_client = before

    def post(self, message: bytes) -> None:
        """Send a message ahead of the answer. May be called from any thread; ignored once the answer is told."""
        if threading.get_ident() == self._patience.thread:
            self._enqueue(message)
        else:
            self._patience.loop.call_soon_threadsafe(self._enqueue, message)

    def ask(self, request: bytes) -> None:
        """Send a request ahead of the answer, however much waits already; ignored once the answer is told.

        Use it on the event loop, and for what waits for an answer: somebody has to bound how much that is.
        """
        if not self._ending:
            self._append(request)

    def _enqueue(self, message: bytes) -> None:
        if not self._ending and (
            self._events is None or self._events.pending_bytes + len(message) <= MAX_PENDING_BYTES
        ):
            self._append(message)

    def _append(self, message: bytes) -> None:
        self._start_stream()
        if self._events is not None:
            self._events.post(message)

    def _start_stream(self) -> None:
        if self._events is None and not self._ending:
            self._events = self._new_stream()
            self._events.start(self._patience.loop)

    def _new_stream(self) -> EventStream:
        return EventStream(self._send, self._headers, KEEP_ALIVE_SECONDS)

    async def answer(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        """Tell the answer: as it is, or as the last event where a stream has begun. A client that is gone gets none."""
        self._ending = True
        if self.client_gone:
            return
        if self._events is not None:
            await self._events.drain()
        self._stop()
        if self._events is not None and self._events.begun:
            await self._events.end(body)
            return
        told = [*headers, *self._headers]
        if status != NO_CONTENT:
            told.append((b"content-length", b"%d" % len(body)))
        if self._shortcut is None or not self._shortcut.respond(status, told, body):
            await self._send({"type": "http.response.start", "status": status, "headers": told})
            await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def stream(self, messages: AsyncIterator[bytes]) -> None:
        """Answer with messages as they come, until there are no more; comments keep the stream open meanwhile."""
        self._ending = True  # what is posted, and a quiet start, need no stream of their own
        self._events = events = self._new_stream()
        with self.ending_with_client():
            await events.copy(messages)
        self._stop()
        await events.end()

    def close(self) -> None:
        """Let go of everything; call it at the end, whatever happened."""
        self._ending = True
        if not self._stopped:
            self._stop()
        if self._events is not None:
            self._events.cancel()

    def _stop(self) -> None:
        self._stopped = True
        self._patience.end(self)
        if self._quiet is not None:
            self._quiet.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
