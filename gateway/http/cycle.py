"""One request on a connection and its response, with ASGI events or in one piece each."""

from __future__ import annotations

import asyncio
import functools
import http
import logging
import re
from collections.abc import Callable, Collection, MutableMapping
from typing import Any, Final

from gateway.http.asgi import AsgiApp, RawHeaders, Scope
from gateway.http.shortcut import SHORTCUT

log = logging.getLogger(__name__)

MAX_REMEMBERED_BYTES: Final = 1024
"""Encoded response headers are cached unless they are longer than this."""

MAX_UNREAD_BYTES: Final = 65536
"""Reading from a connection stops while the application has more than this of a body to read."""

LARGE_BYTES: Final = 65536
"""A larger piece of a response may stay in memory until the client has read all of it. Smaller ones are soon sent."""

LOOKS: Final = 4
"""In so many rounds the event loop reads the request and the end of its connection, and reports that it is lost."""

_NO_NAME: Final = re.compile(rb"[^!#$%&'*+\-.^_`|~0-9A-Za-z]")  # RFC 9110 section 5.6.2
_NO_VALUE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")  # RFC 9110 section 5.5
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_WITHOUT_BODY: Final = frozenset({204, 304})
_OURS_TO_TELL: Final = frozenset({b"connection", b"transfer-encoding"})
_FAILED: Final = b"Internal Server Error"

STATUS_LINES: Final = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in http.HTTPStatus
}
"""The first line of a response, by its status."""


@functools.lru_cache(maxsize=1024)
def header_line(field: tuple[bytes, bytes]) -> bytes:
    """Encode a response header, and cache the result.

    Invalid characters, or a value too long to be cached, raise `ValueError`. The value may contain text that a client
    sent.
    """
    if len(field[1]) > MAX_REMEMBERED_BYTES:
        raise ValueError("a header of the answer is too long")
    return _write_header(field)


def _write_header(field: tuple[bytes, bytes]) -> bytes:
    name, value = field
    if not name or _NO_NAME.search(name) or _NO_VALUE.search(value):
        raise ValueError("a header of the answer has invalid characters")
    return b"%b: %b\r\n" % (name.lower(), value)


_CLOSE: Final = header_line((b"connection", b"close"))


class ExemptConnections:
    """Counts the connections that do not count among those of clients, up to a limit."""

    def __init__(self, limit: int) -> None:
        self.number = 0
        self.limit = limit


class Flow:
    """Prevents each side of a connection from sending faster than the other one reads.

    `last_large_bytes` is the size of the last written piece that was too large to be sent immediately. If
    `write_paused`, the client must read before more is written. `waiting` has the requests that wait for the one before
    them: reading is paused if much of them has arrived. `exempt` counts the connections that are exempt.
    """

    def __init__(self, transport: asyncio.Transport, waiting: Collection[Cycle], exempt: ExemptConnections) -> None:
        self.last_large_bytes = 0
        self.read_paused = False
        self.write_paused = False
        self._transport = transport
        self._waiting = waiting
        self._exempt = exempt
        self.is_exempt = False
        self._writable: asyncio.Event | None = None

    def exempt(self) -> None:
        """Exempt the connection until it is lost, if there is room."""
        if not self.is_exempt and self._exempt.number < self._exempt.limit:
            self.is_exempt = True
            self._exempt.number += 1

    def lose(self) -> None:
        """Release everything that waits, because the connection is lost."""
        if self.is_exempt:
            self.is_exempt = False
            self._exempt.number -= 1
        self.resume_writing()

    def pause_reading(self) -> None:
        """Pause reading."""
        if not self.read_paused:
            self.read_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading, unless too much waits already."""
        if self.read_paused and sum([cycle.unread_bytes for cycle in self._waiting]) <= MAX_UNREAD_BYTES:
            self.read_paused = False
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """Make writers wait."""
        self.write_paused = True

    def resume_writing(self) -> None:
        """Let waiting writers continue."""
        self.write_paused = False
        self.last_large_bytes = 0
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    async def drain(self) -> None:
        """Wait until more can be written."""
        while self.write_paused:
            if self._writable is None:
                self._writable = asyncio.Event()
            await self._writable.wait()


class Cycle:
    """Passes one request to the application, and its response to the client; implements `Shortcut`.

    The default headers are sent with every response. If `expects_continue`, the client waits to be asked for the body
    (RFC 9110 section 10.1.1). `on_complete` is called when the response is written.

    Attributes:
        keep_alive: whether the connection can be reused; False if the response says otherwise.
        more_body: whether more of the body must arrive.
        unconfirmed: whether a part of a stream was written since the client last had received everything.
    """

    task: asyncio.Task[None] | None = None
    disconnected = False
    more_body = True
    response_started = False
    response_complete = False
    unconfirmed = False
    _body: bytes | bytearray = b""
    _news = False
    _wake: asyncio.Event | None = None
    _chunked = False
    _until_close = False
    _due_bytes = 0

    def __init__(
        self,
        scope: Scope,
        transport: asyncio.Transport,
        flow: Flow,
        default_headers: RawHeaders,
        last_values: dict[bytes, bytes],
        *,
        keep_alive: bool,
        expects_continue: bool,
        on_complete: Callable[[], None],
    ) -> None:
        self.scope = scope
        self.last_values = last_values
        self.keep_alive = keep_alive
        self._transport = transport
        self._flow = flow
        self._default_headers = default_headers
        self._expects_continue = expects_continue
        self._on_complete: Callable[[], None] | None = on_complete
        self._is_head: bool = scope["method"] == "HEAD"

    async def run(self, app: AsgiApp, tasks: set[asyncio.Task[None]]) -> None:
        """Let the application answer the request. At the end, `task` is removed from the server's tasks."""
        try:
            try:
                await app(self.scope, self.receive, self.send)
            except GeneratorExit:  # the coroutine is being closed
                raise
            except BaseException:  # whatever it is, it ends only this request
                log.exception("request failed")
            if not self.response_complete and not self.disconnected:
                await self._fail()
        finally:
            # Break the reference cycles, so that nothing waits for the garbage collector.
            self.scope.pop(SHORTCUT, None)
            self._on_complete = None
            if self.task is not None:
                tasks.discard(self.task)
                self.task = None

    async def run_late(self, app: AsgiApp, tasks: set[asyncio.Task[None]]) -> None:
        """Run after a look whether the client is gone: its proxy may have sent the request to another replica."""
        for _ in range(LOOKS):
            await asyncio.sleep(0)
        await self.run(app, tasks)

    async def _fail(self) -> None:
        """End a response that the application did not complete."""
        if self.response_started:
            self._transport.close()
            return
        headers = [
            (b"content-type", b"text/plain"),
            (b"content-length", b"%d" % len(_FAILED)),
            (b"connection", b"close"),
        ]
        await self.send({"type": "http.response.start", "status": 500, "headers": headers})
        await self.send({"type": "http.response.body", "body": _FAILED})

    def add_body(self, part: bytes) -> None:
        """Take a part of the body."""
        if self.response_complete:
            return
        if not self._body:
            self._body = part
        else:  # tiny chunks arrive by the thousand: adding each of them to bytes would copy the body as often
            if not isinstance(self._body, bytearray):
                self._body = bytearray(self._body)
            self._body += part
        if len(self._body) > MAX_UNREAD_BYTES:
            self._flow.pause_reading()
        self._wake_up()

    @property
    def unread_bytes(self) -> int:
        """How much of the body waits for the application."""
        return len(self._body)

    def end_body(self) -> None:
        """Record that the body is complete."""
        if not self.response_complete:
            self.more_body = False
            self._wake_up()

    def disconnect(self) -> None:
        """Record that the client is gone, or that its connection will be closed."""
        if not self.response_complete:
            self.disconnected = True
        self._wake_up()

    def _wake_up(self) -> None:
        """Wake up the application if it waits for an event."""
        self._news = True
        if self._wake is not None:
            self._wake.set()

    async def receive(self) -> MutableMapping[str, Any]:
        """Return the next event of the request (ASGI "HTTP", Request and Disconnect)."""
        if self._expects_continue and not self._transport.is_closing():
            self._transport.write(_CONTINUE)
            self._expects_continue = False
        if not self.disconnected and not self.response_complete:
            self._flow.resume_reading()
            await self._news_of_client()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body, self._body = bytes(self._body), b""
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def _news_of_client(self) -> None:
        while not self._news:
            if self._wake is None:
                self._wake = asyncio.Event()
            self._wake.clear()
            await self._wake.wait()
        self._news = self.disconnected or self.response_complete  # every later call must see these

    async def send(self, event: MutableMapping[str, Any]) -> None:
        """Write the part of the response that an event contains (ASGI "HTTP", Response Start and Response Body).

        Raises:
            RuntimeError: the event is not the next one, or the body does not have the length of its Content-Length.
            ValueError: a header has invalid characters.
        """
        if self._flow.write_paused and not self.disconnected:
            await self._flow.drain()
        if self.disconnected:
            return
        kind = event["type"]
        if self.response_complete or kind != ("http.response.body" if self.response_started else "http.response.start"):
            raise RuntimeError(f"{kind} is not the next event of an answer")
        if self.response_started:
            self._write_body(bytes(event.get("body", b"")), more=bool(event.get("more_body", False)))
        else:
            self._write_start(
                event["status"], [(bytes(name).lower(), bytes(value)) for name, value in event.get("headers", ())]
            )

    def _write_start(self, status: int, headers: RawHeaders) -> None:
        fields = dict(headers)
        told = [field for field in headers if field[0] not in _OURS_TO_TELL]
        first = STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
        lines = [first, *map(_write_header, (*self._default_headers, *told))]
        if b"close" in [option.strip().lower() for option in fields.get(b"connection", b"").split(b",")]:
            self.keep_alive = False
        length = fields.get(b"content-length")
        if length is not None:
            self._due_bytes = int(length)
        elif not self._is_head and status not in _WITHOUT_BODY:
            self._until_close = self.scope["http_version"] == "1.0"  # it has no chunks (RFC 9112 section 6.1)
            self._chunked = not self._until_close
            self.unconfirmed = True
            if self._chunked:
                lines.append(b"transfer-encoding: chunked\r\n")
        self._end_head(lines)
        self._transport.write(b"".join(lines))

    def _end_head(self, lines: list[bytes]) -> None:
        """Complete the head of a response, before any of it is written."""
        self.response_started = True
        self._expects_continue = False
        if _CLOSE in lines:
            self.keep_alive = False
        elif not self.keep_alive:
            lines.append(_CLOSE)
        lines.append(b"\r\n")

    def _write_body(self, body: bytes, *, more: bool) -> None:
        if len(body) > LARGE_BYTES:
            self._flow.last_large_bytes = len(body)
        if self._is_head:
            self._due_bytes = 0
        elif self._until_close:
            self._transport.write(body)
        elif self._chunked:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            self._transport.write(chunk if more else chunk + b"0\r\n\r\n")
        else:
            self._due_bytes -= len(body)
            if self._due_bytes < 0:
                raise RuntimeError("the body of an answer is longer than its Content-Length")
            self._transport.write(body)
        if more:
            self.unconfirmed = True
            return
        if self._due_bytes:
            raise RuntimeError("the body of an answer is shorter than its Content-Length")
        self._complete()

    def _complete(self) -> None:
        self.response_complete = True
        self._body = b""  # nobody will read it
        self._wake_up()
        if not self.keep_alive:
            self._transport.close()
        if self._on_complete is not None:
            self._on_complete()

    def body(self) -> bytes | None:
        """See `gateway.http.shortcut.Shortcut.body`."""
        if self.more_body or self.disconnected:
            return None
        self._flow.resume_reading()
        body, self._body = bytes(self._body), b""
        return body

    def respond(self, status: int, headers: RawHeaders, body: bytes) -> bool:
        """See `gateway.http.shortcut.Shortcut.respond`."""
        if self._flow.write_paused or self.response_started or self.disconnected or self._is_head:
            return False
        lines = [STATUS_LINES[status]]
        try:
            lines += map(header_line, self._default_headers)
            lines += map(header_line, headers)
        except ValueError:
            return False
        self._end_head(lines)
        lines.append(body)
        if len(body) > LARGE_BYTES:
            self._flow.last_large_bytes = len(body)
        self._transport.write(b"".join(lines))
        self._complete()
        return True

    @property
    def is_exempt(self) -> bool:
        """See `gateway.http.shortcut.Shortcut.is_exempt`."""
        return self._flow.is_exempt

    def exempt(self) -> None:
        """See `gateway.http.shortcut.Shortcut.exempt`."""
        if not self.disconnected:
            self._flow.exempt()
