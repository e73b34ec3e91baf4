"""Requests for small documents with urllib, within limits that hold whatever the server does."""

from __future__ import annotations

import asyncio
import calendar
import contextlib
import email.utils
import functools
import http.client
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from gateway.errors import GatewayError
from gateway.observability.clock_watch import Reading
from gateway.runtime.background import in_thread
from gateway.runtime.version import __version__
from gateway.settings.hosts import is_loopback

HEADERS: Final = {
    "Accept": "application/jwk-set+json, application/json",
    "User-Agent": f"sealed-gateway/{__version__}",
}
THREAD_NAME: Final = "fetch-keys"
POST_THREAD_NAME: Final = "post-form"
_ANSWERS: Final = frozenset({200, 400, 401})
"""The statuses of a token endpoint whose body says something (RFC 6749 sections 5.1 and 5.2)."""


class FetchFailed(GatewayError):
    """The document could not be fetched. The message gives the reason, without anything that the server sent."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A response.

    Attributes:
        time: the time according to the server, or to a cache that answered for it; None if it sent none.
    """

    body: bytes
    time: Reading | None
    status: int = 200


async def fetch(url: str, *, seconds: float, max_bytes: int) -> Fetched:
    """Return a 200 response. Redirects are not followed.

    Args:
        url: http or https. The proxy comes from the environment (`HTTPS_PROXY`); there is none for this machine.
        seconds: the time limit for the whole fetch, however slowly the server sends.
        max_bytes: the largest body.

    Raises:
        FetchFailed: there was no such response in time.
    """
    request = urllib.request.Request(url, headers=HEADERS)  # noqa: S310 - http or https only, see `_answer_to`
    return await _send(THREAD_NAME, request, frozenset({200}), seconds, max_bytes)


async def post_form(
    url: str, fields: Mapping[str, str], headers: Mapping[str, str], *, seconds: float, max_bytes: int
) -> Fetched:
    """Post a form, and return the response of an OAuth endpoint, which may be a refusal. See `fetch`.

    Args:
        url: see `fetch`.
        fields: the form.
        headers: further headers.
        seconds: see `fetch`.
        max_bytes: see `fetch`.

    Raises:
        FetchFailed: there was no response in time, or one with a status of which its body says nothing.
    """
    every = {"Accept": "application/json", "User-Agent": HEADERS["User-Agent"], **headers}
    request = urllib.request.Request(url, urlencode(fields).encode(), every)  # noqa: S310 - the same
    return await _send(POST_THREAD_NAME, request, _ANSWERS, seconds, max_bytes)


async def _send(
    thread: str, request: urllib.request.Request, statuses: frozenset[int], seconds: float, max_bytes: int
) -> Fetched:
    line = _Line()
    try:
        async with asyncio.timeout(seconds):
            work = functools.partial(_answer_to, request, statuses, seconds, max_bytes, line)
            return await in_thread(thread, work)
    except TimeoutError:
        raise FetchFailed(f"no answer within {seconds:g} seconds") from None
    finally:
        line.cut()


class _Line:
    """The connection of one fetch. A thread cannot be stopped, but its connection can be closed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handle: socket.socket | None = None
        self._is_cut = False

    def keep(self, connected: socket.socket) -> None:
        """Keep a second handle of a socket, or close the socket if it comes too late."""
        with self._lock:
            self._handle = connected.dup()
        if self._is_cut:
            self.cut()

    def cut(self) -> None:
        """Close the connection, whatever its thread does with it."""
        self._is_cut = True
        with self._lock:
            handle, self._handle = self._handle, None
        if handle is not None:
            with contextlib.suppress(OSError):  # the other side has closed it
                handle.shutdown(socket.SHUT_RDWR)
            handle.close()


class _Connection(http.client.HTTPConnection):
    line: _Line

    def connect(self) -> None:
        super().connect()
        self.line.keep(self.sock)


class _TlsConnection(http.client.HTTPSConnection, _Connection):
    """The same over TLS: the socket is kept before the handshake."""


class _Handler(urllib.request.AbstractHTTPHandler):
    http_request = https_request = urllib.request.AbstractHTTPHandler.do_request_

    def __init__(self, line: _Line) -> None:
        super().__init__()
        self._line = line

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(functools.partial(self._connect, _Connection), request)

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        connect = functools.partial(self._connect, _TlsConnection, context=ssl.create_default_context())
        return self.do_open(connect, request)

    def _connect(self, kind: type[_Connection], host: str, **options: Any) -> _Connection:
        connection = kind(host, **options)
        connection.line = self._line
        return connection


def _answer_to(
    request: urllib.request.Request, statuses: frozenset[int], seconds: float, max_bytes: int, line: _Line
) -> Fetched:
    # Built by hand, because urllib's own opener also follows redirects and opens files.
    opener = urllib.request.OpenerDirector()
    here = is_loopback(urlsplit(request.full_url).hostname or "")
    for handler in (urllib.request.ProxyHandler({} if here else None), _Handler(line)):
        opener.add_handler(handler)
    began = time.monotonic()
    try:
        with opener.open(request, timeout=seconds) as response:
            reading = _reading(response.headers, time.monotonic() - began)
            if response.status not in statuses:
                raise FetchFailed(f"HTTP {response.status}")
            body: bytes = response.read(max_bytes + 1)
    except TimeoutError:
        raise
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise error.reason from None
        raise FetchFailed(_words(error.reason)) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise FetchFailed(_words(error)) from None
    if len(body) > max_bytes:
        raise FetchFailed(f"the answer is larger than {max_bytes} bytes")
    return Fetched(body, reading, response.status)


def _reading(headers: Message, took: float) -> Reading | None:
    """Return the time according to a response that has just arrived.

    A cache answers with the server's original `Date`, and with the response's `Age` since then (RFC 9111, 5.1).
    """
    heard_at = time.time()
    try:
        date = email.utils.parsedate(headers["Date"])
        age = int(headers.get("Age", "0"))
        return Reading(calendar.timegm(date) + float(age), 2.0 if age else 1.0, heard_at, took) if date else None
    except (TypeError, ValueError, OverflowError):
        return None


def _words(reason: object) -> str:
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {reason.verify_message}"
    strerror = reason.strerror if isinstance(reason, OSError) else None
    return strerror or type(reason).__name__
