"""Hands a client's request on to the one replica that waits for it.

Everything is bounded, whatever the other side does: the time, what is read, and what is told of the client's request.
It asks the replica itself: there is no proxy in between, and no redirect is followed.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import ssl
from typing import Final
from urllib.parse import SplitResult, urlsplit

import httptools

from gateway.protocol.headers import HOP, RawHeaders

GONE: Final = 0
"""In place of a status: no replica is there, or it did not answer in time."""

_PASSED_ON: Final = frozenset(
    {b"accept", b"authorization", b"content-type", b"mcp-protocol-version", b"mcp-session-id"}
)
_CHUNK_BYTES: Final = 8192
_MAX_HEAD_BYTES: Final = 65536

log = logging.getLogger(__name__)


async def post_on(url: str, headers: RawHeaders, body: bytes, *, seconds: float = 2.0) -> int:
    """Post a client's request to `/mcp` of another replica and return the HTTP status of its answer.

    The replica is asked under its own authority as `Host`. It reads who calls, in which session, and on which wire from
    the same headers as this one; no others are passed on. Of its answer only the head is read.

    Args:
        url: of the replica, http or https, without `/mcp`. It must come from one of our own settings or tokens.
        headers: of the client's request.
        body: of the client's request.
        seconds: the time for all of it.

    Returns:
        The status, whatever it is, or `GONE` (0).
    """
    try:
        async with asyncio.timeout(seconds):
            return await _post(urlsplit(url), headers, body)
    except (OSError, ValueError) as error:
        log.warning("replica not reached", extra={"url": url, "reason": type(error).__name__})
        return GONE


class _Answer:
    """What httptools tells of an answer; `status` is 0 until the head of the final one is complete."""

    def __init__(self) -> None:
        self.status = 0
        self._parser = httptools.HttpResponseParser(self)

    def read(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if self.status == 0:
                raise ConnectionError("the answer is no HTTP") from None

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self.status == 0 and status >= 200:  # those below announce another one
            self.status = status


async def _post(replica: SplitResult, headers: RawHeaders, body: bytes) -> int:
    if not replica.hostname:
        raise ValueError("the URL has no host")  # asyncio would take that for this machine
    is_tls = replica.scheme == "https"
    reader, writer = await asyncio.open_connection(
        replica.hostname, replica.port or (443 if is_tls else 80), ssl=_tls() if is_tls else None
    )
    try:
        writer.write(_request(replica, headers, body))
        return await _status(reader)
    finally:
        writer.transport.abort()


def _request(replica: SplitResult, headers: RawHeaders, body: bytes) -> bytes:
    lines = [
        b"POST %b/mcp HTTP/1.1" % replica.path.rstrip("/").encode("ascii"),
        b"host: %b" % replica.netloc.encode("ascii"),
        HOP + b": 1",
        b"content-length: %d" % len(body),
        b"connection: close",
    ]
    lines += [b"%b: %b" % (name, value) for name, value in headers if name in _PASSED_ON]
    return b"\r\n".join([*lines, b"", body])


async def _status(reader: asyncio.StreamReader) -> int:
    answer = _Answer()
    received = 0
    while answer.status == 0:
        data = await reader.read(_CHUNK_BYTES)
        received += len(data)
        if not data or received > _MAX_HEAD_BYTES:
            raise ConnectionError("the answer has no head")
        answer.read(data)
    return answer.status


@functools.cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
