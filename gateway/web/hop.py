"""Posts a sealed message to another process of the deployment, and reads its reply.

Everything is bounded, whatever the other side does: the time, the bytes that are read, and the messages in flight.
It connects directly to the other process, without a proxy, and follows no redirects.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
from typing import Final
from urllib.parse import SplitResult, urlsplit
from weakref import WeakValueDictionary

import httptools

from gateway.tokens.hop_messages import NoReply

HOP_PATH: Final = "/_gateway/hop"
"""The path, below the URL of a process, that receives messages."""

HOP_TYPE: Final = b"application/vnd.sealed-gateway.hop"
"""The content type of messages and of replies."""

MAX_REPLY_BYTES: Final = 65536
MAX_POSTS: Final = 32
"""How many messages may be in flight to one URL. More wait within their time limit, so a silent process ties up few
connections."""

_CHUNK_BYTES: Final = 8192
_MAX_HEAD_BYTES: Final = 65536


class HopClient:
    """Posts messages to other processes. Use it only on the event loop."""

    def __init__(self) -> None:
        self._lines: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def post(self, url: str, message: bytes, *, address: str = "", seconds: float = 2.0) -> bytes:
        """Post a message, and return the sealed reply.

        Args:
            url: the http or https URL of the process. It must come from our own settings or tokens.
            message: the sealed message.
            address: one of the addresses of the URL's host; "" for any.
            seconds: the time limit for everything.

        Raises:
            NoReply: the process does not answer, or refuses the message.
        """
        place = f"{url} at {address}" if address else url
        line = self._lines.get(place)
        if line is None:
            line = self._lines[place] = asyncio.Semaphore(MAX_POSTS)
        try:
            async with asyncio.timeout(seconds), line:
                answer = await _post(urlsplit(url), address, message)
        except (OSError, ValueError) as error:
            raise NoReply("no process answers at the URL", url=place, reason=type(error).__name__) from None
        if answer.status != 200:
            raise NoReply("something else answers at the URL", url=place, status=answer.status)
        return bytes(answer.body)


class _Answer:
    """A response, as httptools reads it.

    Attributes:
        status: 0 until the head of the final response is complete.
        body: the part of the body that has arrived.
        complete: whether we have all that we need. If the status is not 200, that is only the head.
    """

    def __init__(self) -> None:
        self.status = 0
        self.body = bytearray()
        self.complete = False
        self._parser = httptools.HttpResponseParser(self)

    def read(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self.complete:
                raise ConnectionError("the answer is not HTTP") from None

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self.status == 0 and status >= 200:  # a lower status announces another response
            self.status = status
            self.complete = status != 200

    def on_body(self, body: bytes) -> None:
        if not self.complete:
            self.body += body

    def on_message_complete(self) -> None:
        self.complete = self.complete or self.status != 0


async def _post(process: SplitResult, address: str, message: bytes) -> _Answer:
    if not process.hostname:
        raise ValueError("the URL has no host")  # asyncio would connect to this machine
    is_tls = process.scheme == "https"
    reader, writer = await asyncio.open_connection(
        address or process.hostname,
        port_of(process),
        ssl=_tls() if is_tls else None,
        server_hostname=process.hostname if is_tls else None,
    )
    try:
        writer.write(_request(process, message))
        return await _answer(reader)
    finally:
        writer.transport.abort()


def port_of(process: SplitResult) -> int:
    """Return the port of a URL."""
    return process.port or (443 if process.scheme == "https" else 80)


def _request(process: SplitResult, message: bytes) -> bytes:
    lines = [
        f"POST {process.path.rstrip('/')}{HOP_PATH} HTTP/1.1".encode("ascii"),
        b"host: %b" % process.netloc.encode("ascii"),
        b"content-type: " + HOP_TYPE,
        b"content-length: %d" % len(message),
        b"connection: close",
    ]
    return b"\r\n".join([*lines, b"", message])


async def _answer(reader: asyncio.StreamReader) -> _Answer:
    answer = _Answer()
    received = 0
    while not answer.complete:
        data = await reader.read(_CHUNK_BYTES)
        received += len(data)
        if not data or received > _MAX_HEAD_BYTES + MAX_REPLY_BYTES:
            raise ConnectionError("the answer is not complete")
        answer.read(data)
    return answer


@functools.cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
