"""One HTTP request and its answer, on bare ASGI.

The answer is plain JSON, unless a message has to be sent before it is complete. Then it becomes a stream of Server-Sent
Events, whose last event is the response (2026-07-28 "Streamable HTTP", Receiving Messages). Closing the connection
cancels the request (Cancellation).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from typing import Any, Final

from gateway.http.asgi import RawHeaders, Receive, Send
from gateway.http.shortcut import Shortcut
from gateway.protocol.jsonrpc import RequestId
from gateway.protocol.versions import Wire
from gateway.runtime.turns import Turns
from gateway.web.events import EventStreamWriter

NO_CONTENT: Final = 204
"""The status of responses that must not have a `Content-Length` (RFC 9110 section 8.6)."""

KEEP_ALIVE_SECONDS = 15.0
"""After this time without a message, a stream gets a comment, and a request without a stream becomes one."""

WATCH_AFTER_SECONDS = 0.02
"""After this time, or up to twice as long, we watch for a disconnect. Most requests have ended by then."""

MAX_PENDING_BYTES = 1 << 20
"""The size of notifications that may wait for a slow reader. More are dropped, which the protocol allows."""


class ClientGone(Exception):
    """The client has closed the connection."""


class BodyTooLarge(Exception):
    """The body exceeds the limit. The rest of it is not read."""


class Patience:
    """Finds the exchanges that take long, with one timer for all of them.

    `turns` are those of exchanges that take long at once; see `Exchange.turn`.
    """

    def __init__(self) -> None:
        self.turns = Turns(pauses=3)
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self._new: set[Exchange] = set()
        self._old: set[Exchange] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, exchange: Exchange) -> None:
        """Call `takes_long` of an exchange later, unless it ends before."""
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
    """Reads one request and writes its answer. The headers are sent with every answer.

    Many exchanges share a `patience`. There is no shortcut if the server has only ASGI events.

    Attributes:
        was_read: whether the body has arrived, so that the request may have run.
        request_id: the id under which an error is answered, None if it is not known.
        is_handshake: whether the request is known to be one of a handshake wire.
    """

    # Most exchanges never set these.
    client_gone = False
    _ends_with_client = True
    _task: asyncio.Task[Any] | None = None
    _quiet: asyncio.TimerHandle | None = None
    _watcher: asyncio.Task[None] | None = None
    _events: EventStreamWriter | None = None
    _ending = False
    _stopped = False
    is_handshake = False

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
        # Not a default of the class: mypyc leaves out those that are None, unless there is one other type.
        self.request_id: RequestId | None = None
        self.was_read = False

    def identify(self, request_id: RequestId | None, wire: Wire | None) -> None:
        """Record which request an error is about, see `gateway.wires.ports.Client.identify`."""
        self.request_id = request_id
        self.is_handshake = request_id is not None and wire not in {None, Wire.RELEASED}

    def add_headers(self, headers: RawHeaders) -> None:
        """Send these headers too, with any answer."""
        self._headers = [*self._headers, *headers]

    def whole_body(self) -> bytes | None:
        """Return the body if it is already complete, or None. Call this only once."""
        return None if self._shortcut is None else self._shortcut.body()

    async def read_body(self, limit: int, count: Callable[[int], None] | None = None) -> bytes:
        """Return the body. `count` is called with the size of each part when it arrives.

        Raises:
            Exception: from `count`. The rest of the body is not read.
            BodyTooLarge: more than `limit` bytes arrived.
            ClientGone: the client disconnected first.
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
            if count is not None:
                count(len(chunk))
            chunks.append(chunk)
            if not event.get("more_body", False):
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def turn(self, caller: Hashable) -> None:
        """Wait for a turn to do work that stops the event loop for some time. Callers have turns alike."""
        await self._patience.turns.begin(None, caller)

    def begin(self, *, may_stream: bool, outlives_client: bool = False) -> None:
        """Watch for a disconnect of the client from now on. It cancels the current task.

        With `may_stream`, the client gets a stream after a quiet time. With `outlives_client`, the task continues
        without its client, except inside `ending_with_client`.
        """
        self._ends_with_client = not outlives_client
        self._may_stream = may_stream
        self._task = asyncio.current_task() if self._shortcut is None else self._shortcut.task
        if self._task is None:
            raise RuntimeError("an exchange must run in a task")
        self._patience.begin(self)

    def takes_long(self) -> None:
        """Start to watch for a disconnect, because the answer takes longer than most."""
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
        """Cancel the current task if the client disconnects while the context is open.

        If it has already disconnected, entering the context raises `ClientGone`.
        """
        if self.client_gone:
            raise ClientGone
        before, self._ends_with_client = self._ends_with_client, True
        try:
            yield
        finally:
            self._ends_with_client = before

    def post(self, message: bytes) -> None:
        """Send a message before the answer, from any thread. It is ignored once the answer has started."""
        if threading.get_ident() == self._patience.thread:
            self._enqueue(message)
        else:
            self._patience.loop.call_soon_threadsafe(self._enqueue, message)

    def ask(self, request: bytes) -> None:
        """Send a server request before the answer, even if many messages wait. Ignored once the answer has started.

        Use it only on the event loop. The caller must limit how many requests it sends.
        """
        if not self._ending:
            self._append(request)

    def _enqueue(self, message: bytes) -> None:
        pending_bytes = 0 if self._events is None else self._events.pending_bytes
        if not self._ending and pending_bytes + len(message) <= MAX_PENDING_BYTES:
            self._append(message)

    def _append(self, message: bytes) -> None:
        self._start_stream()
        if self._events is not None:
            self._events.post(message)

    def _start_stream(self) -> None:
        if self._events is None and not self._ending:
            self._events = self._new_stream()
            self._events.start(self._patience.loop)

    def _new_stream(self) -> EventStreamWriter:
        return EventStreamWriter(self._send, self._headers, KEEP_ALIVE_SECONDS)

    async def answer(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        """Send the answer, as the last event if a stream has started. Do nothing if the client has disconnected."""
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
        """Answer with messages as they come, until the source ends. Comments keep the stream open."""
        self._ending = True  # posted messages and a quiet start must not open another stream
        self._events = events = self._new_stream()
        with self.ending_with_client():
            await events.copy(messages)
        self._stop()
        await events.end()

    def close(self) -> None:
        """Release everything. Always call this at the end."""
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
