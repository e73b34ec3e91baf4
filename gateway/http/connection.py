"""One client's connection: HTTP/1.1, with limits on everything that a client sends and reads.

httptools refuses most requests that two parsers could read differently: two framings or lengths, bad chunk sizes,
folded lines, NUL, bare LF (RFC 9112 sections 2.2, 5.2, 6.3). This module refuses the rest.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from typing import Any, Final

import httptools
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl
from uvicorn.server import ServerState

from gateway.http.asgi import AsgiApp, Scope
from gateway.http.callbacks import Callbacks, Cause, Refusal
from gateway.http.cycle import STATUS_LINES, Cycle, ExemptConnections, Flow
from gateway.http.limits import Limits
from gateway.http.presence import Presence
from gateway.http.shortcut import SHORTCUT
from gateway.http.slow_clients import Due, SlowClient, Standstills, WaitingBytes

log = logging.getLogger(__name__)

MAX_PIPELINED: Final = 16
"""How many pipelined requests may wait for the one before them. Each costs memory, and few clients use pipelining."""

MAX_UNFINISHED_HEAD_BYTES: Final = 2**24
"""How many bytes all heads may have that have arrived in part. Those that arrive in one piece do not count."""

MAX_SMALL_PARTS: Final = 2048
BYTES_OF_PART: Final = 128
"""A body may arrive in so many parts, its trailers included, and one more for so many bytes: each takes time."""

_HEADER_BYTES: Final = 256
"""How much memory a header takes at most besides its text."""

_ASGI: Final = {"version": "3.0", "spec_version": "2.3"}
_ABSOLUTE: Final = re.compile(rb"https?://([^/?#]+)", re.IGNORECASE)
_IPV4_MAPPED: Final = "::ffff:"
_FIELD_OVERHEAD_BYTES: Final = len(": \r\n")
_REQUEST_LINE_OVERHEAD_BYTES: Final = len("  HTTP/1.1\r\n") + len("\r\n")


class ConnectionRules:
    """The rules for all connections of a server."""

    def __init__(self, limits: Limits, callbacks: Callbacks) -> None:
        self.limits = limits
        self.callbacks = callbacks
        self.unread_answers = WaitingBytes(limits.max_unread_bytes, Connection.cut_off_slow_reader)
        self.unfinished_heads = WaitingBytes(MAX_UNFINISHED_HEAD_BYTES, Connection.refuse_slow_head)
        self.standstills = Standstills()
        self.exempt = ExemptConnections(limits.max_exempt_connections)


class Connection:
    """Serves one connection; implements `asyncio.Protocol` and the protocol interface of uvicorn's server.

    The time limits need no timers, because `check_progress` is called every second.

    `state` has the server's connections and tasks, and the headers of every response. `app_state` is that of the
    application's lifespan. `cycle` is the last request and its response.
    """

    transport: asyncio.Transport

    def __init__(self, rules: ConnectionRules, app: AsgiApp, state: ServerState, app_state: dict[str, Any]) -> None:
        self.cycle: Cycle | None = None
        self._serving: Cycle | None = None  # if pipelined requests wait behind it, `cycle` is the last of them
        self._pipeline: deque[Cycle] = deque()
        self._app = app
        self._state = state
        self._app_state = app_state
        self._limits = rules.limits
        self._callbacks = rules.callbacks
        self._unread_answers = rules.unread_answers
        self._unfinished_heads = rules.unfinished_heads
        self._standstills = rules.standstills
        self._exempt = rules.exempt
        self._has_unfinished_head = False
        self._loop = asyncio.get_running_loop()
        self._flow: Flow | None = None
        self._addresses: dict[str, Any] = {}
        self._parser: Any = self._new_parser()
        self._url = b""
        self._target = (b"", "", b"", b"")  # the last parsed target: as received, path, raw path, query
        self._line = b"\0"  # the last request line that was checked, with its line end
        self._piece = b""  # the last data received; for a head in several pieces, all of them
        self._headers: list[tuple[bytes, bytes]] = []
        self._last_values: dict[bytes, bytes] = {}
        self._in_head = False
        self._is_counted = False
        self._expects_continue = False
        self._received = 0  # bytes since the last request was complete
        self._body_due = False
        self._parts = 0  # of the body
        self._refusal: Refusal | None = None  # sent behind the answers to the requests that came before
        self._slowness = SlowClient(rules.limits)
        self._presence: Presence | None = None

    def _new_parser(self) -> Any:
        parser = httptools.HttpRequestParser(self)
        # Data after a request that ends the connection is ignored. Without this, it would be an error.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Start to serve, unless too many connections are open."""
        self.transport = transport
        if len(self._state.connections) - self._exempt.number >= self._limits.max_connections:
            self._callbacks.connection_refused()
            transport.abort()
            return
        server, client = get_local_addr(transport), _client_of(transport)
        if client is None and server is not None and server[1] is not None:
            # The client reset its TCP connection before it was accepted. A proxy may have sent the requests in it to
            # another replica; without an address, they would seem to be others.
            transport.abort()
            return
        self._state.connections.add(self)  # type: ignore[arg-type]  # uvicorn shuts them down, and no more
        self._flow = Flow(transport, self._pipeline, self._exempt)
        self._addresses = {
            "server": server,
            "client": client,
            "scheme": "https" if is_ssl(transport) else "http",
        }

    def connection_lost(self, exc: Exception | None) -> None:
        """Disconnect the requests that are not answered yet."""
        self._state.connections.discard(self)
        self._unread_answers.remove(self)
        self._unfinished_heads.remove(self)
        self._disconnect()
        self._pipeline.clear()
        if self._flow is not None:
            self._flow.lose()
        if exc is None:
            self.transport.close()
        self._parser = None

    def eof_received(self) -> None:
        """Let the transport close the connection. A client that has stopped sending gets no answer."""

    def pause_writing(self) -> None:
        """Stop writing until the client has read."""
        if self._flow is not None:
            self._flow.pause_writing()
            # The last piece stays in memory until all of it is sent.
            size = max(self._flow.last_large_bytes, self.transport.get_write_buffer_size())
            self._unread_answers.add(self, size)

    def resume_writing(self) -> None:
        """Continue writing, because the client has read."""
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
        """Close immediately if the client does not read. Requests that wait for it are then disconnected."""
        if self._flow is not None and self._flow.write_paused:
            self.transport.abort()

    def cut_off_slow_reader(self) -> None:
        """Close immediately, and count a client that does not read its response."""
        self._callbacks.client_refused(Cause.SLOW_READER)
        self.transport.abort()

    def refuse_slow_head(self) -> None:
        """Refuse a head that has not arrived completely, because there are too many of them."""
        self._refuse(Refusal(503, "Too many requests arrive slowly", Cause.SLOW_HEAD))

    def data_received(self, data: bytes) -> None:
        """Read the received data."""
        unread = data
        while unread and self._refusal is None:
            unread = self._read(unread)

    def _read(self, data: bytes) -> bytes:
        """Read some data, and return the data to read instead, or b""."""
        self._received += len(data)
        self._piece = self._piece + data if self._in_head else data
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            return self._without_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            cause = error.__context__  # the exception that a callback raised
            self._refuse(cause if isinstance(cause, Refusal) else Refusal(400, "Not a valid HTTP request"))
            return b""
        if self._in_head or self._has_unfinished_head:
            self._count_head()
        else:
            self._piece = b""
        if self._body_due and self.cycle is not None:
            self._callbacks.still_arriving(self.cycle.scope)
        if self._received > self._limits.max_header_bytes and self._refusal is None and not self.transport.is_closing():
            self._check_received()
        return b""

    def _count_head(self) -> None:
        """Count a head that arrives in several pieces, until it is complete."""
        self._has_unfinished_head = self._in_head
        if not self._in_head:
            self._piece = b""
            self._unfinished_heads.remove(self)
        elif len(self._headers) > self._limits.max_headers:
            self._refuse(self._too_many_headers())
        else:
            self._unfinished_heads.add(self, len(self._piece) + _HEADER_BYTES * len(self._headers))

    def on_message_begin(self) -> None:
        """Start to read a head."""
        self._url = b""
        self._headers = []
        self._last_values = {}
        self._in_head = True
        self._parts = 0
        self._is_counted = self._received > 0
        self._expects_continue = False

    def on_url(self, url: bytes) -> None:
        """Take a part of the target."""
        self._url = self._url + url if self._url else url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header. Fields after a chunked body are trailers, and are ignored (RFC 9110 section 6.5.1)."""
        if not self._in_head:
            self._parts += 1
            if self._parts > MAX_SMALL_PARTS:
                self._check_parts()
            return
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects_continue = True
        self._headers.append((name, value))
        self._last_values[name] = value

    def on_headers_complete(self) -> None:
        """Check a head, and start to answer its request."""
        # A head that arrived together with the end of the previous request has not been counted.
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
        if not self._parser.should_upgrade():  # otherwise `data_received` continues
            self._begin(version)
        self._body_due = True

    def _begin(self, version: str) -> None:
        """Start to answer a request, or queue it."""
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
        """Return the ASGI scope of a request ("HTTP", Connection Scope)."""
        url = self._url
        if url != self._target[0]:  # most clients use only one target
            parts: Any = httptools.parse_url(url)  # its type hints do not allow a query of None
            raw = parts.path or b"/"
            # Contrary to ASGI, the path stays encoded, so that no path can stand for another one that a proxy blocks.
            # No path that is served needs encoding.
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
        # The same as the loop's `create_task`, without its support for task factories.
        is_late = self._loop.time() > self._standstills.fresh_until
        tasks = self._state.tasks
        running = cycle.run_late(self._app, tasks) if is_late else cycle.run(self._app, tasks)
        cycle.task = task = asyncio.Task(running, loop=self._loop, name="request")
        tasks.add(task)

    def _go_on(self) -> None:
        """Continue with the next request."""
        self._state.total_requests += 1
        if self.transport.is_closing() or self._flow is None:
            return
        if self._refusal is None:
            self._flow.resume_reading()
        if self._pipeline:
            self._serve(self._pipeline.popleft())
        elif self._refusal is not None:
            self.transport.write(self._response(self._refusal))
            self.transport.close()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._parts += 1
        if self._parts > MAX_SMALL_PARTS:
            self._check_parts()
        if self.cycle is not None and not self._parser.should_upgrade():
            self.cycle.add_body(body)

    def _check_parts(self) -> None:
        if self._parts > MAX_SMALL_PARTS + self._received // BYTES_OF_PART:
            raise Refusal(400, "The body arrives in too many small chunks; send larger ones")

    def on_message_complete(self) -> None:
        """Record that a request has arrived completely."""
        self._body_due = False
        self._received = 0
        if self.cycle is not None and not self._parser.should_upgrade():
            self.cycle.end_body()

    def check_progress(self, elapsed_seconds: float) -> None:
        """Close the connection if the client takes too long to send or to read. Call this every second.

        For sending, only time in which we wait for the client counts: not while a request is being answered, and not
        while reading is paused. The time between two requests has a separate limit.
        """
        if self._flow is None:
            return
        waits = self._flow.write_paused or self.transport.is_closing()
        if waits and self._slowness.reads_nothing(self.transport.get_write_buffer_size(), elapsed_seconds):
            self.cut_off_slow_reader()
        if self.transport.is_closing():  # it closes when the client has read the rest
            return
        serving = self._serving
        if serving is not None and serving.unconfirmed and not serving.response_complete:
            self._check_presence(serving, elapsed_seconds)
        self._refuse_overdue(self._slowness.overdue(self._waits_for(), elapsed_seconds))

    def _refuse_overdue(self, overdue: Due | None) -> None:
        """Close the connection if the client has taken too long to send what is due."""
        if overdue is Due.BODY:
            self._refuse(Refusal(408, "The body took too long to arrive", Cause.SLOW_BODY))
        elif overdue is Due.HEAD:
            self._refuse(Refusal(408, "The head took too long to arrive", Cause.SLOW_HEAD))
        elif overdue is Due.REQUEST:
            self.transport.close()

    def _check_presence(self, serving: Cycle, elapsed_seconds: float) -> None:
        """Close the connection if the client has acknowledged nothing of a stream for too long: it is gone."""
        if self._presence is None:
            self._presence = Presence(self.transport)
        silent_seconds = self._presence.look(elapsed_seconds)
        if silent_seconds is None:
            serving.unconfirmed = False
        elif silent_seconds >= self._limits.silent_seconds:
            self._callbacks.client_lost()
            self.transport.abort()

    def _waits_for(self) -> tuple[Cycle | None, Due] | None:
        """Return the last request and the data that is due after it, or None if we do not wait for the client."""
        if self._body_due:
            return None if self._flow is None or self._flow.read_paused else (self.cycle, Due.BODY)
        if self.cycle is None:
            return None, Due.HEAD
        if not self.cycle.response_complete:
            return None
        return self.cycle, Due.HEAD if self._received else Due.REQUEST

    def _without_upgrade(self, rest: bytes) -> bytes:
        """Return the head of an upgrade request without its `Upgrade`, followed by the rest of the data.

        A server may ignore a request to change the protocol (RFC 9110 section 7.8). But the parser takes everything
        after its head as the other protocol, or as the next request: a body would be lost or, worse, served as a
        request. So the request is parsed again without its `Upgrade`.
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
            raise self._too_many_headers()

    def _check_line(self, method: bytes, version: str) -> None:
        """Refuse a request line that a proxy may read differently (RFC 9112 section 3).

        httptools accepts repeated blanks, and a target with a fragment.
        """
        line = b"%b %b HTTP/%b" % (method, self._url, version.encode())
        if self._is_counted:
            is_single = self._piece.lstrip(b"\r\n").startswith(line)
        else:  # it follows another request, somewhere in the received data
            pattern = b"%b +%b +HTTP/%b" % (method, re.escape(self._url), re.escape(version.encode()))
            is_single = set(re.findall(pattern, self._piece)) == {line}
        if not is_single or b"#" in self._url:
            raise Refusal(400, "The request line must be a method, a target without a fragment, and a version")
        self._line = line + b"\r\n"

    def _check_target(self, method: bytes) -> None:
        """Refuse a target that is neither a path nor a URL with the host of the request."""
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
        """Refuse a request that is too large before all of it has arrived."""
        if not self._body_due:
            self._refuse(self._head_too_large())
        elif self._received > self._limits.max_message_bytes:
            message = f"The request is larger than {self._limits.max_message_bytes} bytes"
            self._refuse(Refusal(413, message, Cause.BODY_TOO_LARGE))

    def _head_too_large(self) -> Refusal:
        message = f"The head of the request is larger than {self._limits.max_header_bytes} bytes"
        return Refusal(431, message, Cause.HEADERS_TOO_LARGE)

    def _too_many_headers(self) -> Refusal:
        message = f"The request has more than {self._limits.max_headers} headers"
        return Refusal(431, message, Cause.HEADERS_TOO_LARGE)

    def _refuse(self, refusal: Refusal) -> None:
        """Answer the complete requests that came before, then send the reason, and close the connection.

        A request that ran has had its effect, so it gets its answer. The reason is sent only if the client would match
        it with the refused request.
        """
        self._callbacks.client_refused(refusal.cause)
        log.debug("connection closed", extra={"status": refusal.status, "reason": str(refusal)})
        if self._body_due and self._pipeline:
            self._pipeline.pop()  # it has not run, and the rest of its body never comes
            self._body_due = False
        serving = self._serving
        if serving is not None and not serving.response_complete and not self._body_due and self._flow is not None:
            self._refusal = refusal
            self._flow.pause_reading()
            return
        if self._expects_response():
            self.transport.write(self._response(refusal))
        if self.cycle is not None and not self.cycle.response_complete:
            self._disconnect()
        self.transport.close()

    def _expects_response(self) -> bool:
        """Return whether the client would match a response with the request that is refused now."""
        if self.cycle is None or self.cycle.response_complete:
            return bool(self._received) and not self._body_due
        return self._body_due and not self.cycle.response_started

    def _disconnect(self) -> None:
        """Disconnect the requests that are not answered yet."""
        for cycle in (self.cycle, self._serving):
            if cycle is not None:
                cycle.disconnect()

    def _response(self, refusal: Refusal) -> bytes:
        headers, body = self._callbacks.write_refusal(refusal, self._headers)
        fields = [
            *self._state.default_headers,
            *headers,
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        return STATUS_LINES[refusal.status] + b"".join(b"%b: %b\r\n" % field for field in fields) + b"\r\n" + body


def _client_of(transport: asyncio.Transport) -> tuple[str, int] | None:
    """Return the address of the client. A socket for IPv4 and IPv6 reports one of IPv4 as `::ffff:192.0.2.1`."""
    address = get_remote_addr(transport)
    if address is None or "." not in address[0]:
        return address
    return address[0].removeprefix(_IPV4_MAPPED), address[1]
