"""One client's connection: HTTP/1.1, with limits on everything that comes before a request is ours.

httptools refuses most of what two readers could take differently: two framings or lengths, bad chunk sizes, folded
lines, NUL, bare LF (RFC 9112 sections 2.2, 5.2, 6.3). What it lets pass is refused here.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import Any, Final

import httptools
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl
from uvicorn.server import ServerState

from gateway.http.asgi import AsgiApp, Scope
from gateway.http.callbacks import Callbacks, Cause, Refusal
from gateway.http.cycle import STATUS_LINES, Cycle, Flow
from gateway.http.limits import Limits
from gateway.http.presence import Presence
from gateway.http.shortcut import SHORTCUT

log = logging.getLogger(__name__)

MAX_PIPELINED: Final = 16
"""How many requests may wait for the one before them to be answered: each costs memory, and hardly any client does."""

SWEEP_SECONDS: Final = 1.0
"""How often all connections are looked at; a limit of time may be overrun by as much."""

LONGEST_STEP_SECONDS: Final = 2 * SWEEP_SECONDS
"""Time between two looks counts up to this much: when the event loop stood still, no client is to blame."""

_ASGI: Final = {"version": "3.0", "spec_version": "2.3"}
_ABSOLUTE: Final = re.compile(rb"https?://([^/?#]+)", re.IGNORECASE)
_FIELD_OVERHEAD_BYTES: Final = len(": \r\n")
_REQUEST_LINE_OVERHEAD_BYTES: Final = len("  HTTP/1.1\r\n") + len("\r\n")


class _Due(Enum):
    """What a client is to send next: the body of a request, the rest of a head, another request if it has one."""

    BODY = "body"
    HEAD = "head"
    REQUEST = "request"


class UnreadAnswers:
    """Bounds what waits to be sent to clients that do not read, over all connections.

    Over the limit, the connections that have waited longest are closed first. The newest one stays: an answer larger
    than the limit can still be sent.

    Args:
        max_bytes: the limit.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._waiting: dict[Connection, int] = {}  # the longest first
        self._total_bytes = 0

    def add(self, connection: Connection, size_bytes: int) -> None:
        """Count what a connection holds until its client has read, and make room for it."""
        self.remove(connection)
        self._waiting[connection] = size_bytes
        self._total_bytes += size_bytes
        while self._total_bytes > self._max_bytes and len(self._waiting) > 1:
            oldest = next(iter(self._waiting))
            self.remove(oldest)
            oldest.cut_off_slow_reader()

    def remove(self, connection: Connection) -> None:
        """Count a connection no more: its client has read, or is gone."""
        self._total_bytes -= self._waiting.pop(connection, 0)


class ConnectionRules:
    """What holds for all connections of a server.

    Args:
        limits: what clients may do.
        callbacks: what hears of them.
    """

    def __init__(self, limits: Limits, callbacks: Callbacks) -> None:
        self.limits = limits
        self.callbacks = callbacks
        self.unread_answers = UnreadAnswers(limits.max_unread_bytes)


class Connection:
    """Serves one connection; satisfies `asyncio.Protocol`, and what uvicorn's server wants of its protocols.

    The limits of time need no timer: `check_progress` is called each second.

    Args:
        rules: what holds for all connections.
        app: the application.
        state: of the server: its connections, its tasks, the headers of every answer.
        app_state: of the application's lifespan.

    Attributes:
        cycle: the request that came last, with its answer; None before the first one.
        transport: where bytes go, once the connection is made.
    """

    transport: asyncio.Transport

    def __init__(self, rules: ConnectionRules, app: AsgiApp, state: ServerState, app_state: dict[str, Any]) -> None:
        self.cycle: Cycle | None = None
        self._serving: Cycle | None = None  # where others wait behind it, `cycle` is the last of them
        self._pipeline: deque[Cycle] = deque()
        self._app = app
        self._state = state
        self._app_state = app_state
        self._limits = rules.limits
        self._callbacks = rules.callbacks
        self._unread_answers = rules.unread_answers
        self._loop = asyncio.get_running_loop()
        self._flow: Flow | None = None
        self._addresses: dict[str, Any] = {}
        self._parser: Any = self._new_parser()
        self._url = b""
        self._target = (b"", "", b"", b"")  # the last one that was taken apart: as it came, path, raw path, query
        self._line = b"\0"  # the last request line that was checked, with its end
        self._piece = b""  # what came last; of a head in several pieces, all of them
        self._headers: list[tuple[bytes, bytes]] = []
        self._last_values: dict[bytes, bytes] = {}
        self._in_head = False
        self._is_counted = False
        self._expects_continue = False
        self._received = 0  # bytes since the last request was complete
        self._body_due = False
        self._waited_for: tuple[Cycle | None, _Due] | None = None
        self._waited_seconds = 0.0
        self._unread = 0  # bytes, when that was last looked at
        self._unread_seconds = 0.0
        self._presence: Presence | None = None

    def _new_parser(self) -> Any:
        parser = httptools.HttpRequestParser(self)
        # What follows a request that ends the connection is not read; without this it would be an error.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin to serve, unless too many connections are open."""
        self.transport = transport
        if len(self._state.connections) >= self._limits.max_connections:
            self._callbacks.connection_refused()
            transport.abort()
            return
        self._state.connections.add(self)  # type: ignore[arg-type]  # uvicorn shuts them down, and no more
        self._flow = Flow(transport)
        self._addresses = {
            "server": get_local_addr(transport),
            "client": get_remote_addr(transport),
            "scheme": "https" if is_ssl(transport) else "http",
        }

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the requests that are not answered yet."""
        self._state.connections.discard(self)
        self._unread_answers.remove(self)
        self._disconnect()
        self._pipeline.clear()
        if self._flow is not None:
            self._flow.resume_writing()
        if exc is None:
            self.transport.close()
        self._parser = None

    def eof_received(self) -> None:
        """Let the transport close the connection: who sends no more is not answered."""

    def pause_writing(self) -> None:
        """Note that the client has to read first."""
        if self._flow is not None:
            self._flow.pause_writing()
            # The whole of what was written last is held until all of it is sent.
            size = max(self._flow.last_large_bytes, self.transport.get_write_buffer_size())
            self._unread_answers.add(self, size)

    def resume_writing(self) -> None:
        """Note that the client has read."""
        if self._flow is not None:
            self._flow.resume_writing()
            self._unread_answers.remove(self)

    def shutdown(self) -> None:
        """Close as soon as the last request is answered."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def cut_off(self) -> None:
        """Close at once if the client does not read what is written; what waits for it is then told that it is gone."""
        if self._flow is not None and self._flow.write_paused:
            self.transport.abort()

    def cut_off_slow_reader(self) -> None:
        """Close at once, and count a client that does not read its answer."""
        self._callbacks.client_refused(Cause.SLOW_READER)
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read what came."""
        unread = data
        while unread:
            unread = self._read(unread)

    def _read(self, data: bytes) -> bytes:
        """Read some data; return what is to be read in its place, or nothing."""
        self._received += len(data)
        self._piece = self._piece + data if self._in_head else data
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            return self._without_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            cause = error.__context__  # what a callback raised
            self._refuse(cause if isinstance(cause, Refusal) else Refusal(400, "Not a valid HTTP request"))
            return b""
        if not self._in_head:
            self._piece = b""
        if self._body_due and self.cycle is not None:
            self._callbacks.still_arriving(self.cycle.scope)
        if self._received > self._limits.max_header_bytes:
            self._check_received()
        return b""

    def on_message_begin(self) -> None:
        """Begin to read a head."""
        self._url = b""
        self._headers = []
        self._last_values = {}
        self._in_head = True
        self._is_counted = self._received > 0
        self._expects_continue = False

    def on_url(self, url: bytes) -> None:
        """Take a part of the target."""
        self._url = self._url + url if self._url else url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field; those after a chunked body are no headers, whatever they are called (RFC 9110 6.5.1)."""
        if not self._in_head:
            return
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects_continue = True
        self._headers.append((name, value))
        self._last_values[name] = value

    def on_headers_complete(self) -> None:
        """Check a head and begin to answer its request."""
        # What came in one piece with the end of the request before it has not been counted.
        if (
            not self._is_counted
            or self._received > self._limits.max_header_bytes
            or len(self._headers) > self._limits.max_headers
        ):
            self._check_head()
        method: bytes = self._parser.get_method()
        version: str = self._parser.get_http_version()
        if not self._is_counted or not self._piece.startswith(self._line):
            self._check_line(method, version)
        if not self._url.startswith(b"/") or method == b"CONNECT":
            self._check_target(method)
        if len(self._pipeline) >= MAX_PIPELINED:
            raise Refusal(400, f"No more than {MAX_PIPELINED} requests may be pipelined")
        if version != "1.1":
            self._check_version(version)
        self._in_head = False
        if not self._parser.should_upgrade():  # else `data_received` goes on
            self._begin(version)
        self._body_due = True

    def _begin(self, version: str) -> None:
        """Begin to answer a request, or put it in line."""
        flow = self._flow
        if flow is None:
            return
        before = self.cycle
        self.cycle = cycle = Cycle(
            self._scope(version),
            self.transport,
            flow,
            self._state.default_headers,
            self._last_values,
            keep_alive=version != "1.0" and self._parser.should_keep_alive(),
            expects_continue=self._expects_continue and version == "1.1",
            on_complete=self._go_on,
        )
        if before is None or before.response_complete:
            self._serve(cycle)
        else:
            flow.pause_reading()
            self._pipeline.append(cycle)

    def _scope(self, version: str) -> Scope:
        """Return what ASGI tells of a request ("HTTP", Connection Scope)."""
        url = self._url
        if url != self._target[0]:  # most clients ask for one only
            parts: Any = httptools.parse_url(url)  # its types do not say that a query may be None
            raw = parts.path or b"/"
            # Unlike ASGI says, the path stays encoded: then no path stands for another one, that a proxy lets nobody
            # reach. None that is served has anything to encode.
            self._target = (url, raw.decode("ascii"), raw, parts.query or b"")
        _, path, raw_path, query = self._target
        return {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "method": self._parser.get_method().decode("ascii"),
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "root_path": "",
            "headers": self._headers,
            "state": self._app_state.copy(),
            **self._addresses,
        }

    def _serve(self, cycle: Cycle) -> None:
        cycle.scope[SHORTCUT] = cycle
        self._callbacks.arrived(cycle.scope)
        self._serving = cycle
        # As the loop's own `create_task`, without what that does for a task factory.
        cycle.task = task = asyncio.Task(cycle.run(self._app, self._state.tasks), loop=self._loop, name="request")
        self._state.tasks.add(task)

    def _go_on(self) -> None:
        """Go on with the next request."""
        self._state.total_requests += 1
        if self.transport.is_closing() or self._flow is None:
            return
        self._flow.resume_reading()
        if self._pipeline:
            self._serve(self._pipeline.popleft())

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        if self.cycle is not None and not self._parser.should_upgrade():
            self.cycle.add_body(body)

    def on_message_complete(self) -> None:
        """Note that a request has arrived as a whole."""
        self._body_due = False
        self._received = 0
        if self.cycle is not None and not self._parser.should_upgrade():
            self.cycle.end_body()

    def check_progress(self, elapsed_seconds: float) -> None:
        """Cut the connection off if the client takes too long to send or to read what was begun; call it each second.

        Of sending, only time in which we wait for the client counts: neither that in which a request is answered, nor
        that in which we do not read. That between two requests has a limit of its own.

        Args:
            elapsed_seconds: time since the last call.
        """
        if self._flow is None:
            return
        if self.transport.is_closing():  # as soon as the client has read the rest
            self._check_reading(elapsed_seconds)
            return
        if self._flow.write_paused:
            self._check_reading(elapsed_seconds)
        serving = self._serving
        if serving is not None and serving.unconfirmed and not serving.response_complete:
            self._check_presence(serving, elapsed_seconds)
        waits_for = self._waits_for()
        if waits_for is None or waits_for != self._waited_for:
            self._waited_for = waits_for
            self._waited_seconds = 0.0
            return
        self._waited_seconds += elapsed_seconds
        due = waits_for[1]
        if due is _Due.BODY and self._waited_seconds >= self._limits.body_seconds:
            self._refuse(Refusal(408, "The body took too long to arrive", Cause.SLOW_BODY))
        elif due is _Due.HEAD and self._waited_seconds >= self._limits.head_seconds:
            self._refuse(Refusal(408, "The head took too long to arrive", Cause.SLOW_HEAD))
        elif due is _Due.REQUEST and self._waited_seconds >= self._limits.idle_seconds:
            self.transport.close()

    def _check_reading(self, elapsed_seconds: float) -> None:
        """Cut the connection off if nothing of a full buffer was taken for too long; what fills it has long stopped."""
        unread = self.transport.get_write_buffer_size()
        self._unread_seconds = self._unread_seconds + elapsed_seconds if unread == self._unread else 0.0
        self._unread = unread
        if self._unread_seconds >= self._limits.unread_seconds:
            self.cut_off_slow_reader()

    def _check_presence(self, serving: Cycle, elapsed_seconds: float) -> None:
        """Close the connection of a client that has acknowledged nothing of a stream for too long: it is gone."""
        if self._presence is None:
            self._presence = Presence(self.transport)
        silent_seconds = self._presence.look(elapsed_seconds)
        if silent_seconds is None:
            serving.unconfirmed = False
        elif silent_seconds >= self._limits.silent_seconds:
            self._callbacks.client_lost()
            self.transport.abort()

    def _waits_for(self) -> tuple[Cycle | None, _Due] | None:
        """Return what we wait for: after which request, and what is due."""
        if self._body_due:
            return None if self._flow is None or self._flow.read_paused else (self.cycle, _Due.BODY)
        if self.cycle is None:
            return None, _Due.HEAD
        if not self.cycle.response_complete:
            return None
        return self.cycle, _Due.HEAD if self._received else _Due.REQUEST

    def _without_upgrade(self, rest: bytes) -> bytes:
        """Return the request that was read, and the rest, as if it did not ask for another protocol.

        A server may answer such a request in this protocol (RFC 9110 section 7.8).

        The parser takes whatever follows its head for that other protocol, or for the next request: a body would be
        lost or, worse, served. So the request is read again without its `Upgrade`.
        """
        lines = [b"%b %b HTTP/%b" % (self._parser.get_method(), self._url, self._parser.get_http_version().encode())]
        lines += [b"%b: %b" % field for field in self._headers if field[0] != b"upgrade"]
        self._parser = self._new_parser()
        return b"\r\n".join([*lines, b"", rest])

    def _check_head(self) -> None:
        size = len(self._parser.get_method()) + len(self._url) + _REQUEST_LINE_OVERHEAD_BYTES
        size += sum(len(name) + len(value) + _FIELD_OVERHEAD_BYTES for name, value in self._headers)
        if size > self._limits.max_header_bytes:
            raise self._head_too_large()
        if len(self._headers) > self._limits.max_headers:
            raise Refusal(431, f"The request has more than {self._limits.max_headers} headers", Cause.HEADERS_TOO_LARGE)

    def _check_line(self, method: bytes, version: str) -> None:
        """Refuse a request line that a proxy may read otherwise (RFC 9112 section 3).

        httptools lets more than one blank in a place pass, and a target with a fragment.
        """
        line = b"%b %b HTTP/%b" % (method, self._url, version.encode())
        if self._is_counted:
            is_single = self._piece.lstrip(b"\r\n").startswith(line)
        else:  # it stands behind another request, somewhere in what came
            pattern = b"%b +%b +HTTP/%b" % (method, re.escape(self._url), re.escape(version.encode()))
            is_single = set(re.findall(pattern, self._piece)) == {line}
        if not is_single or b"#" in self._url:
            raise Refusal(400, "The request line must be a method, a target without a fragment, and a version")
        self._line = line + b"\r\n"

    def _check_target(self, method: bytes) -> None:
        """Refuse a target that is neither a path nor a URL of the host that the request is for."""
        if method == b"CONNECT":
            raise Refusal(400, "This server is not a proxy")
        if self._url == b"*":
            return
        absolute = _ABSOLUTE.match(self._url)
        hosts = [value.lower() for name, value in self._headers if name == b"host"]
        if absolute is None or hosts != [absolute.group(1).lower()]:
            raise Refusal(400, "The request target and the Host header differ")

    def _check_version(self, version: str) -> None:
        if version != "1.0":
            raise Refusal(505, "This server supports only HTTP/1.1")
        if any(name == b"transfer-encoding" for name, _ in self._headers):
            raise Refusal(400, "HTTP/1.0 has no Transfer-Encoding")  # RFC 9112 section 6.1

    def _check_received(self) -> None:
        """Refuse what is too large before all of it is there."""
        if not self._body_due:
            self._refuse(self._head_too_large())
        elif self._received > self._limits.max_message_bytes:
            message = f"The request is larger than {self._limits.max_message_bytes} bytes"
            self._refuse(Refusal(413, message, Cause.BODY_TOO_LARGE))

    def _head_too_large(self) -> Refusal:
        message = f"The head of the request is larger than {self._limits.max_header_bytes} bytes"
        return Refusal(431, message, Cause.HEADERS_TOO_LARGE)

    def _refuse(self, refusal: Refusal) -> None:
        """Say why, where the client would take it for the answer to the request at fault, and hang up."""
        self._callbacks.client_refused(refusal.cause)
        log.debug("connection closed", extra={"status": refusal.status, "reason": str(refusal)})
        if self.cycle is None or self.cycle.response_complete:
            if self._received and not self._body_due:
                self.transport.write(self._response(refusal))
        else:
            if self._body_due and not self.cycle.response_started and not self._pipeline:
                self.transport.write(self._response(refusal))
            self._disconnect()
        self.transport.close()

    def _disconnect(self) -> None:
        """Tell the requests that are not answered yet that their client is gone."""
        for cycle in (self.cycle, self._serving):
            if cycle is not None:
                cycle.disconnect()

    def _response(self, refusal: Refusal) -> bytes:
        headers, body = self._callbacks.write_refusal(refusal)
        fields = [
            *self._state.default_headers,
            *headers,
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        return STATUS_LINES[refusal.status] + b"".join(b"%b: %b\r\n" % field for field in fields) + b"\r\n" + body


class Sweeper:
    """Looks at all connections each second while the server runs.

    Args:
        connections: those that are open.
        loop: the event loop.
    """

    def __init__(self, connections: Iterable[Any], loop: asyncio.AbstractEventLoop) -> None:
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
            connection.check_progress(elapsed)
