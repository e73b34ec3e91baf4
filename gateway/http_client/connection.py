"""One connection to a server: HTTP/1.1, one request at a time.

httptools refuses most responses that two parsers could read differently: two framings or lengths, bad chunk sizes,
folded lines, bare LF (RFC 9112 sections 2.2, 5.2, 6.3). This module refuses the rest, and everything without end.
"""

from __future__ import annotations

import asyncio
import select
import ssl
from typing import Any, Final, Protocol, cast

import httptools

from gateway.http_client.failures import HttpReason
from gateway.http_client.incoming import IncomingResponse

MAX_HEAD_BYTES: Final = 64 * 1024
"""The largest head, with all interim responses before it. Trailers and chunk extensions have this limit too."""

MAX_HEADERS: Final = 256
"""How many headers a response may have, with its trailers and those of interim responses."""

PORTION_BYTES: Final = 32 * 1024
"""How much of a response is parsed before other work gets its turn: a piece of a body may be one byte."""

MAX_SMALL_PIECES: Final = 4096
BYTES_OF_PIECE: Final = 32
"""A body may have so many pieces, and one more for so many of its bytes: each takes time, however small."""

_STALE: Final = select.POLLIN | getattr(select, "POLLRDHUP", 0)


class Owner(Protocol):
    """Keeps connections."""

    def freed(self, connection: HttpConnection) -> None:
        """Take back a connection, which is ready for another request."""
        ...

    def lost(self, connection: HttpConnection) -> None:
        """Forget a connection, which is closed."""
        ...


class _RefusedResponse(Exception):
    """The response exceeds a limit, or has a form that is not accepted."""


class HttpConnection(asyncio.Protocol):
    """Sends requests and receives their responses.

    `owner` keeps this connection; it is None while it is not ready. The server keeps it open for `keep_alive_seconds`,
    if it has said so.
    """

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.owner: Owner | None = None
        self.is_lost = False
        self.keep_alive_seconds: float | None = None
        self._loop = asyncio.get_running_loop()
        self._parser: Any = httptools.HttpResponseParser(self)
        self._poll: select.poll | None = None
        self._incoming: IncomingResponse | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._headers: dict[str, str] = {}
        self._header_count = 0
        self._header_bytes = 0
        self._unproductive_bytes = 0  # received since the last byte of a body
        self._pieces = self._body_bytes = 0
        self._unparsed = b""
        self._in_body = False
        self._ends_with_connection = False
        self._is_ended = False  # the last byte of the response was parsed
        self._is_reusable = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast("asyncio.Transport", transport)  # `create_connection` makes no other

    def send(self, request: bytes, body: bytes, deadline: float) -> IncomingResponse:
        """Send a request; its response is received until the deadline, a time of the event loop."""
        incoming = IncomingResponse(self._loop)
        self._incoming = incoming
        self._timer = self._loop.call_at(deadline, self._time_out)
        self._headers = {}
        self._header_count = self._header_bytes = self._unproductive_bytes = self._pieces = self._body_bytes = 0
        self._in_body = self._ends_with_connection = self._is_ended = self._is_reusable = False
        self.transport.write(request + body)
        return incoming

    def is_usable(self) -> bool:
        """Return whether an idle connection can take a request.

        The event loop may not have noticed yet that the server has closed it, or has sent something unasked, which
        would be read as the response. So the socket itself is asked.
        """
        if self.is_lost or self.transport.is_closing():
            return False
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(self.transport.get_extra_info("socket").fileno(), _STALE)
        return not self._poll.poll(0)

    def leave(self, incoming: IncomingResponse) -> None:
        """Close the connection at once unless the response is complete: nobody reads the rest of it."""
        if self._incoming is incoming:
            self.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        self._stop(HttpReason.CUT, "closed by the gateway")
        self.transport.abort()

    def detach(self) -> None:
        """Stop receiving the response, and keep the connection open."""
        self._incoming = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def data_received(self, data: bytes) -> None:
        """Parse a part of the response, in portions if it is long."""
        if len(data) <= PORTION_BYTES and not self._unparsed:
            self._take(data)
            return
        self._unparsed += data
        self._pause()
        self._take_portion()

    def _take_portion(self) -> None:
        """Parse the next portion of what has arrived, and the others as soon as the reader wants them."""
        portion, self._unparsed = self._unparsed[:PORTION_BYTES], self._unparsed[PORTION_BYTES:]
        if not portion:
            return
        self._take(portion)
        incoming = self._incoming
        if incoming is None:
            self._unparsed = b""
        if incoming is None or incoming.resume is None:
            self._resume()

    def _take(self, data: bytes) -> None:
        incoming = self._incoming
        if incoming is None:
            self.abort()  # nothing was asked
            return
        try:
            self._parse(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade, _RefusedResponse) as error:
            self._is_reusable = False
            if not self._is_ended:
                self._refuse(error)
                return
        if self._is_ended:
            self._is_reusable = self._is_reusable and not self._unparsed
            self._finish(incoming)

    def eof_received(self) -> None:
        """Let the transport close the connection."""

    def connection_lost(self, exc: Exception | None) -> None:
        """End the response that was being received."""
        while self._unparsed and self._incoming is not None:
            self._take_portion()
        self.is_lost = True
        self._parser = None  # it refers to this object
        self._poll = None
        incoming = self._incoming
        if incoming is not None and self._ends_with_connection and exc is None:
            self.detach()
            incoming.complete()
        reason = "TLS failed" if isinstance(exc, ssl.SSLError) else "the server closed the connection"
        self._stop(HttpReason.CUT, reason)
        if self.owner is not None:
            self.owner.lost(self)

    def on_message_begin(self) -> None:
        """Refuse a second response to one request."""
        if self._is_ended:
            raise _RefusedResponse("a second response")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, within limits. Trailers are dropped."""
        self._header_count += 1
        self._header_bytes += len(name) + len(value)
        if self._header_count > MAX_HEADERS or self._header_bytes > MAX_HEAD_BYTES:
            raise _RefusedResponse("too many or too large headers")
        if not self._in_body:
            key = name.decode("latin-1").lower()
            text = value.decode("latin-1")
            known = self._headers.get(key)
            self._headers[key] = text if known is None else f"{known}, {text}"

    def on_headers_complete(self) -> None:
        """Pass the head on, unless it belongs to an interim response."""
        status = self._parser.get_status_code()
        if status < 200:
            return
        headers = self._headers
        coding = headers.get("transfer-encoding")
        if coding is not None and coding.lower() != "chunked":
            raise _RefusedResponse("a transfer coding that is not accepted")
        if headers.get("content-encoding", "identity").lower() not in {"identity", ""}:
            raise _RefusedResponse("a content coding that was not asked for")
        self._in_body = True
        self._ends_with_connection = coding is None and "content-length" not in headers
        if self._incoming is not None:
            self._incoming.receive_head(status, headers)

    def on_body(self, data: bytes) -> None:
        """Pass a piece of the body on."""
        self._unproductive_bytes = 0
        self._pieces += 1
        self._body_bytes += len(data)
        if self._pieces > MAX_SMALL_PIECES + self._body_bytes // BYTES_OF_PIECE:
            raise _RefusedResponse("the body has too many small pieces")
        incoming = self._incoming
        if incoming is not None and incoming.receive(data) and incoming.resume is None:
            incoming.resume = self._resume
            self._pause()

    def on_message_complete(self) -> None:
        """Note the end of the response, or forget an interim one."""
        if self._in_body:
            self._is_ended = True
            self._is_reusable = self._parser.should_keep_alive()
        else:
            self._headers = {}

    def _finish(self, incoming: IncomingResponse) -> None:
        """Complete the response, and make the connection ready for another request if it can take one."""
        self.detach()
        incoming.complete()
        if incoming.resume is not None:
            incoming.resume()
            incoming.resume = None
        if self.owner is None:
            return
        if self._is_reusable and not self.transport.get_write_buffer_size():
            self.keep_alive_seconds = _keep_alive_seconds(incoming.headers.get("keep-alive"))
            self.owner.freed(self)
        else:
            self.transport.abort()

    def _pause(self) -> None:
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def _resume(self) -> None:
        """Parse what has arrived, then receive more."""
        if self._unparsed:
            self._loop.call_soon(self._take_portion)
        elif not self.transport.is_closing():
            self.transport.resume_reading()

    def _parse(self, data: bytes) -> None:
        self._unproductive_bytes += len(data)
        self._parser.feed_data(data)
        if self._unproductive_bytes > MAX_HEAD_BYTES:
            raise _RefusedResponse(
                "too much between two pieces of the body" if self._in_body else "the head is too large"
            )

    def _refuse(self, error: Exception) -> None:
        cause = error.__context__ or error  # the parser wraps what a callback raises
        self._stop(
            HttpReason.MALFORMED, str(cause) if isinstance(cause, _RefusedResponse) else "not a valid HTTP/1.1 response"
        )
        self.transport.abort()

    def _time_out(self) -> None:
        self._stop(HttpReason.TIMED_OUT, "no complete response in time")
        self.transport.abort()

    def _stop(self, reason: HttpReason, detail: str) -> None:
        incoming = self._incoming
        self.detach()
        if incoming is not None:
            incoming.fail(reason, detail)


def _keep_alive_seconds(header: str | None) -> float | None:
    """Return the `timeout` of a `Keep-Alive` header, in seconds, or None."""
    if header is None:
        return None
    for parameter in header.split(","):
        name, _, value = parameter.strip().partition("=")
        if name.lower() == "timeout" and value.isascii() and value.isdigit() and len(value) < 9:
            return float(value)
    return None
