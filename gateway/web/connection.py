"""One client's connection: uvicorn's HTTP/1.1 protocol, with limits on everything that comes before a request is ours.

uvicorn and httptools refuse most of what two readers could take differently: two framings or lengths, bad chunk
sizes, folded lines, NUL, bare LF (RFC 9112 sections 2.2, 5.2, 6.3). What they let pass is refused here.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol

import httptools
from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from gateway.errors import HttpRefusal
from gateway.telemetry import RefusalReason, Telemetry
from gateway.web.errors import to_http
from gateway.web.exchange import SHORTCUT, RawHeaders

log = logging.getLogger(__name__)

MAX_PIPELINED: Final = 16
"""How many requests may wait for the one before them to be answered: each costs memory, and hardly any client does."""

SWEEP_SECONDS: Final = 1.0
"""How often all connections are looked at; a limit of time may be overrun by as much."""

LONGEST_STEP_SECONDS: Final = 2 * SWEEP_SECONDS
"""Time between two looks counts up to this much: when the event loop stood still, no client is to blame."""

MAX_REMEMBERED_BYTES: Final = 1024
"""Headers of answers are written once and remembered, unless they are longer."""

_PATH_START: Final = ord("/")
_ABSOLUTE: Final = re.compile(rb"https?://([^/?#]+)", re.IGNORECASE)
_FIELD_OVERHEAD_BYTES: Final = len(": \r\n")
_REQUEST_LINE_OVERHEAD_BYTES: Final = len("  HTTP/1.1\r\n") + len("\r\n")


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What a client may do before its request is ours.

    Attributes:
        max_connections: how many connections may be open; more are closed at once.
        max_header_bytes: the largest head of a request, as sent: request line, headers and the empty line.
        max_headers: how many headers it may have.
        max_message_bytes: the largest request as sent, with the framing of its chunks.
        head_seconds: how long the first head may take after connecting, others after their first byte.
        body_seconds: how long a body may take after its head.
        unread_seconds: how long a client may take nothing of an answer that waits to be sent.
    """

    max_connections: int
    max_header_bytes: int
    max_headers: int
    max_message_bytes: int
    head_seconds: float
    body_seconds: float
    unread_seconds: float


class Arrivals(Protocol):
    """Hears of requests before anything is done for them."""

    def arrived(self, scope: Any) -> None:
        """Note that the headers of a request are complete and its turn on the connection has come."""
        ...

    def still_arriving(self, scope: Any) -> None:
        """Note that a request's body is not complete yet. Told whenever a part has come."""
        ...


class _Discarded(list[tuple[bytes, bytes]]):
    """Where fields after a chunked body go: they are no headers, whatever they are called (RFC 9110 section 6.5.1)."""

    def append(self, _field: tuple[bytes, bytes], /) -> None:
        pass


_TRAILERS: Final = _Discarded()


class _Due(Enum):
    """What a client is to send next: the body of a request, the rest of a head, another request if it has one."""

    BODY = "body"
    HEAD = "head"
    REQUEST = "request"


class Connection(HttpToolsProtocol):
    """Serves one connection.

    The limits of time need no timer: `check_progress` is called each second. What runs for each request calls
    uvicorn's methods by name, as `super()` would cost as much as all checks together.

    Attributes:
        limits: what the client may do.
        telemetry: counts what is refused.
        own_headers: sent with every refusal.
        arrivals: hears of each request.
    """

    # uvicorn's own attributes are about as many as Python keeps quick access to in one dictionary.
    __slots__ = (
        *("_body_due", "_max_header_bytes", "_max_headers", "_received"),
        *("_serving", "_unread", "_unread_seconds", "_waited_for", "_waited_seconds"),
    )

    limits: ConnectionLimits
    telemetry: Telemetry
    own_headers: Iterable[tuple[bytes, bytes]]
    arrivals: Arrivals
    cycle: RequestResponseCycle | None  # type: ignore[assignment]  # as it really is before the first request

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._max_header_bytes = self.limits.max_header_bytes
        self._max_headers = self.limits.max_headers
        self._received = 0  # bytes since the last request was complete
        self._body_due = False
        self._serving: RequestResponseCycle | None = None  # where others wait behind it, `cycle` is the last of them
        self._waited_for: tuple[RequestResponseCycle | None, _Due] | None = None
        self._waited_seconds = 0.0
        self._unread = 0  # bytes, when that was last looked at
        self._unread_seconds = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        """Begin to serve, unless too many connections are open."""
        if len(self.connections) >= self.limits.max_connections:
            self.transport = transport
            self.telemetry.connection_refused()
            transport.abort()
            return
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request that is served; uvicorn tells the last one that came."""
        super().connection_lost(exc)
        if self._serving is not None and not self._serving.response_complete:
            self._serving.disconnected = True
            self._serving.message_event.set()

    def data_received(self, data: bytes) -> None:
        """Read what came. Replaces uvicorn's method, which ignores the bodies of requests that ask for an upgrade."""
        self._received += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._go_on_without_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError as error:
            cause = error.__context__  # what a callback raised
            self._refuse(cause if isinstance(cause, HttpRefusal) else HttpRefusal(400, "This is no valid HTTP/1.1"))
            return
        if self._body_due and self.cycle is not None:
            self.arrivals.still_arriving(self.cycle.scope)
        if self._received > self._max_header_bytes:
            self._check_received()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        cycle.scope[SHORTCUT] = _Shortcut(self, cycle)  # type: ignore[literal-required]  # a key of ours
        self.arrivals.arrived(cycle.scope)
        self._serving = cycle
        HttpToolsProtocol._start_asgi_task(self, cycle, app)  # noqa: SLF001 - ours too, as a subclass

    def on_headers_complete(self) -> None:
        """Check a head and begin to answer its request."""
        # A head that begins in the middle of what came in one piece has not been counted yet.
        if not 0 < self._received <= self._max_header_bytes or len(self.headers) > self._max_headers:
            self._check_head()
        if self.url[0] != _PATH_START:
            self._check_target()
        if len(self.pipeline) >= MAX_PIPELINED:
            raise HttpRefusal(400, f"No more than {MAX_PIPELINED} requests may wait for the one before them")
        HttpToolsProtocol.on_headers_complete(self)
        self._body_due = True
        self.headers = _TRAILERS
        if self.scope["http_version"] != "1.1":
            self._check_version()

    def on_message_complete(self) -> None:
        """Note that a request has arrived as a whole."""
        self._body_due = False
        self._received = 0
        HttpToolsProtocol.on_message_complete(self)

    def on_response_complete(self) -> None:
        """Go on with the next request. Replaces uvicorn's method, which sets a timer where there is none."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())

    def check_progress(self, elapsed_seconds: float) -> None:
        """Cut the connection off if the client takes too long to send or to read what was begun; call it each second.

        Of sending, only time in which we wait for the client counts: neither that in which a request is answered, nor
        that in which we do not read. That between two requests has a limit of its own.

        Args:
            elapsed_seconds: time since the last call.
        """
        if self.flow.write_paused:
            self._check_reading(elapsed_seconds)
        waits_for = self._waits_for()
        if waits_for is None or waits_for != self._waited_for:
            self._waited_for = waits_for
            self._waited_seconds = 0.0
            return
        self._waited_seconds += elapsed_seconds
        due = waits_for[1]
        if due is _Due.BODY and self._waited_seconds >= self.limits.body_seconds:
            self._refuse(HttpRefusal(408, "The body took too long to arrive"), RefusalReason.SLOW_BODY)
        elif due is _Due.HEAD and self._waited_seconds >= self.limits.head_seconds:
            self._refuse(HttpRefusal(408, "The head took too long to arrive"), RefusalReason.SLOW_HEAD)
        elif due is _Due.REQUEST and self._waited_seconds >= self.timeout_keep_alive:
            self.transport.close()

    def _check_reading(self, elapsed_seconds: float) -> None:
        """Cut the connection off if nothing of a full buffer was taken for too long; what fills it has long stopped."""
        unread = self.transport.get_write_buffer_size()
        self._unread_seconds = self._unread_seconds + elapsed_seconds if unread == self._unread else 0.0
        self._unread = unread
        if self._unread_seconds >= self.limits.unread_seconds:
            self.telemetry.request_refused(RefusalReason.SLOW_READER)
            self.transport.abort()

    def _waits_for(self) -> tuple[RequestResponseCycle | None, _Due] | None:
        """Return what we wait for: after which request, and what is due."""
        if self._body_due:
            return None if self.flow.read_paused else (self.cycle, _Due.BODY)
        if self.cycle is None:
            return None, _Due.HEAD
        if not self.cycle.response_complete:
            return None
        return self.cycle, _Due.HEAD if self._received else _Due.REQUEST

    def _should_upgrade(self) -> bool:
        """Tell uvicorn to leave a request that asks for an upgrade to `data_received`."""
        return True

    def _go_on_without_upgrade(self, rest: bytes) -> None:
        """Answer a request in this protocol though it asks for another one, as a server may (RFC 9110 section 7.8).

        The parser takes whatever follows its head for that other protocol, or for the next request: a body would be
        lost or, worse, served. So the request is read again without its `Upgrade`.
        """
        lines = [b"%b %b HTTP/%b" % (self.scope["method"].encode(), self.url, self.scope["http_version"].encode())]
        lines += [b"%b: %b" % field for field in self.scope["headers"] if field[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does: it is not read
        self.data_received(b"\r\n".join([*lines, b"", rest]))

    def _check_head(self) -> None:
        fields = self.headers
        size = len(self.parser.get_method()) + len(self.url) + _REQUEST_LINE_OVERHEAD_BYTES
        size += sum(len(name) + len(value) + _FIELD_OVERHEAD_BYTES for name, value in fields)
        if size > self.limits.max_header_bytes:
            raise self._head_too_large()
        if len(fields) > self.limits.max_headers:
            raise HttpRefusal(431, f"The request has more than {self.limits.max_headers} headers")

    def _check_target(self) -> None:
        """Refuse a target that is neither a path nor a URL of the host that the request is for."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            raise HttpRefusal(400, "This is no proxy")
        if self.url == b"*":
            return
        absolute = _ABSOLUTE.match(self.url)
        hosts = [value.lower() for name, value in self.headers if name == b"host"]
        if absolute is None or hosts != [absolute.group(1).lower()]:
            raise HttpRefusal(400, "The target of the request and its Host differ")

    def _check_version(self) -> None:
        version = self.scope["http_version"]
        if version != "1.0":
            raise HttpRefusal(505, "This server speaks HTTP/1.1")
        if any(name == b"transfer-encoding" for name, _ in self.scope["headers"]):
            raise HttpRefusal(400, "HTTP/1.0 has no Transfer-Encoding")  # RFC 9112 section 6.1

    def _check_received(self) -> None:
        """Refuse what is too large before all of it is there."""
        if not self._body_due:
            self._refuse(self._head_too_large())
        elif self._received > self.limits.max_message_bytes:
            self._refuse(HttpRefusal(413, f"The request is larger than {self.limits.max_message_bytes} bytes"))

    def _head_too_large(self) -> HttpRefusal:
        return HttpRefusal(431, f"The head of the request is larger than {self.limits.max_header_bytes} bytes")

    def _refuse(self, refusal: HttpRefusal, reason: RefusalReason | None = None) -> None:
        """Say why, where the client would take it for the answer to the request at fault, and hang up."""
        self.telemetry.request_refused(reason or _REASONS.get(refusal.status, RefusalReason.BAD_HTTP))
        log.debug("connection closed", extra={"status": refusal.status, "reason": str(refusal)})
        if self.cycle is None or self.cycle.response_complete:
            if self._received and not self._body_due:
                self.transport.write(self._response(refusal))
        else:
            if self._body_due and not self.cycle.response_started and not self.pipeline:
                self.transport.write(self._response(refusal))
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    def _response(self, refusal: HttpRefusal) -> bytes:
        status, headers, body = to_http(refusal, None)
        fields = [
            *self.server_state.default_headers,
            *headers,
            *self.own_headers,
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        return STATUS_LINE[status] + b"".join(b"%b: %b\r\n" % field for field in fields) + b"\r\n" + body


@functools.lru_cache(maxsize=1024)
def _header_line(field: tuple[bytes, bytes]) -> bytes:
    """Write a header of an answer.

    Raises:
        ValueError: it would not be one header, or is too long to be remembered: its value may be what a client sent.
    """
    name, value = field
    if len(value) > MAX_REMEMBERED_BYTES:
        raise ValueError("a header of the answer is too long")
    if HEADER_RE.search(name) or HEADER_VALUE_RE.search(value):
        raise ValueError("a header of the answer has characters that no header may have")
    return b"%b: %b\r\n" % (name.lower(), value)


_CLOSE: Final = _header_line((b"connection", b"close"))


class _Shortcut:
    """Reads and answers one request in one piece each, as uvicorn would in several; see `gateway.web.exchange`."""

    __slots__ = ("_connection", "_cycle")

    def __init__(self, connection: Connection, cycle: RequestResponseCycle) -> None:
        self._connection = connection
        self._cycle = cycle

    def body(self) -> bytes | None:
        cycle = self._cycle
        if cycle.more_body or cycle.disconnected:
            return None
        self._connection.flow.resume_reading()
        body = bytes(cycle.body)
        cycle.body = bytearray()
        return body

    def respond(self, status: int, headers: RawHeaders, body: bytes) -> bool:
        connection, cycle = self._connection, self._cycle
        if (
            connection.flow.write_paused
            or cycle.response_started
            or cycle.disconnected
            or cycle.scope["method"] == "HEAD"
        ):
            return False
        try:
            lines = [_header_line(field) for field in (*cycle.default_headers, *headers)]
        except ValueError:
            return False
        cycle.response_started = True
        cycle.waiting_for_100_continue = False
        if _CLOSE in lines:
            cycle.keep_alive = False
        elif not cycle.keep_alive:
            lines.append(_CLOSE)
        connection.transport.write(b"".join((STATUS_LINE[status], *lines, b"\r\n", body)))
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            connection.transport.close()
        cycle.on_response()
        return True


_REASONS: Final = {413: RefusalReason.BODY_TOO_LARGE, 431: RefusalReason.HEADERS_TOO_LARGE}


def make_connection_class(
    limits: ConnectionLimits, telemetry: Telemetry, arrivals: Arrivals, *, replica_id: str | None = None
) -> type[Connection]:
    """Return the class that uvicorn makes its connections of.

    Args:
        limits: what clients may do.
        telemetry: counts what is refused.
        arrivals: hears of each request.
        replica_id: told in `X-Gateway-Replica` of every refusal, or None for no such header.
    """
    own_headers = () if replica_id is None else ((b"x-gateway-replica", replica_id.encode("ascii")),)
    members = {"limits": limits, "telemetry": telemetry, "own_headers": own_headers, "arrivals": arrivals}
    return type("LimitedConnection", (Connection,), members)


class Sweeper:
    """Looks at all connections each second while the server runs.

    Args:
        connections: those that are open; others of uvicorn's protocols are left alone.
        loop: the event loop.
    """

    def __init__(self, connections: Iterable[object], loop: asyncio.AbstractEventLoop) -> None:
        self._connections = connections
        self._loop = loop
        self._looked_at = loop.time()
        self._timer = loop.call_later(SWEEP_SECONDS, self._sweep)

    def stop(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _sweep(self) -> None:
        now = self._loop.time()
        elapsed = min(now - self._looked_at, LONGEST_STEP_SECONDS)
        self._looked_at = now
        self._timer = self._loop.call_later(SWEEP_SECONDS, self._sweep)
        for connection in list(self._connections):
            if isinstance(connection, Connection):
                connection.check_progress(elapsed)
