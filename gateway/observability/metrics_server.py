"""`GET /metrics` on a separate port, served from a thread, so a process with a busy event loop can be observed.

Clients need no authentication, so they may use few resources: there are few connections at a time, each for a short
time, and one thread for all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import socket
import threading
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from prometheus_client import CollectorRegistry, make_wsgi_app

from gateway.errors import ConfigurationError
from gateway.runtime.sockets import CannotListen, open_listener

log = logging.getLogger(__name__)

PATH: Final = "/metrics"
MAX_CONNECTIONS: Final = 8
"""How many connections may be open. To accept another one, the oldest without a complete head is closed."""
HEAD_SECONDS: Final = 5.0
"""How long the head of a request may take."""
REQUEST_SECONDS: Final = 10.0
"""How long a request may take in total, until its response has been read."""
MAX_HEAD_BYTES: Final = 8192

_END_OF_HEAD: Final = b"\r\n\r\n"
_BACKLOG: Final = 128
_PAUSE_SECONDS: Final = 1.0
"""The pause after a failed attempt to accept, as when the process has run out of file descriptors."""


class MetricsServer:
    """Serves metrics until it is stopped.

    `stop` closes the listener. `port` is known even if it was picked at random.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        listener: socket.socket,
        host: str,
        *,
        head_seconds: float = HEAD_SECONDS,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        self.port: int = listener.getsockname()[1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}{PATH}"
        self._metrics = make_wsgi_app(registry)
        self._listener = listener
        self._head_seconds = head_seconds
        self._request_seconds = request_seconds
        self._open: set[asyncio.Task[None]] = set()
        self._without_head: dict[asyncio.Task[None], None] = {}  # oldest first
        self._loop = asyncio.SelectorEventLoop()
        self._serving = self._loop.create_task(self._serve())
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop listening, close all connections and end the thread."""
        self._loop.call_soon_threadsafe(self._serving.cancel)
        self._thread.join()

    def _run(self) -> None:
        with self._listener, contextlib.closing(self._loop), contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._serving)

    async def _serve(self) -> None:
        self._listener.setblocking(False)
        try:
            while True:
                await self._somebody_connects()
                if len(self._open) >= MAX_CONNECTIONS:
                    await _end(itertools.islice(self._without_head, 1))
                try:
                    connection, _ = self._listener.accept()
                except (BlockingIOError, ConnectionAbortedError):
                    continue  # the client is gone again
                except OSError as error:
                    log.warning("metrics cannot be served", extra={"reason": error.strerror or type(error).__name__})
                    await asyncio.sleep(_PAUSE_SECONDS)
                else:
                    self._take(connection)
        finally:
            await _end(self._open)

    async def _somebody_connects(self) -> None:
        """Wait for a connection without accepting it, since a cancelled `sock_accept` may lose one."""
        ready = asyncio.Event()
        self._loop.add_reader(self._listener, ready.set)
        try:
            await ready.wait()
        finally:
            self._loop.remove_reader(self._listener)

    def _take(self, connection: socket.socket) -> None:
        if len(self._open) >= MAX_CONNECTIONS:  # all of them are being answered
            connection.close()
            return
        connection.setblocking(False)
        task = self._loop.create_task(self._answer(connection))
        self._open.add(task)
        self._without_head[task] = None

        def ended(_: asyncio.Task[None]) -> None:
            self._open.discard(task)
            self._without_head.pop(task, None)
            connection.close()

        task.add_done_callback(ended)

    async def _answer(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, TimeoutError):  # the client is gone or too slow
            async with asyncio.timeout(self._request_seconds):
                async with asyncio.timeout(self._head_seconds):
                    head = await self._read_head(connection)
                task = asyncio.current_task()
                if task is not None:
                    self._without_head.pop(task, None)
                if head:
                    await self._loop.sock_sendall(connection, self._response(head))

    async def _read_head(self, connection: socket.socket) -> bytes:
        """Return what was sent up to the end of the head; nothing if the client disconnects before."""
        head = b""
        while _END_OF_HEAD not in head and len(head) <= MAX_HEAD_BYTES:
            piece = await self._loop.sock_recv(connection, MAX_HEAD_BYTES)
            if not piece:
                return b""
            head += piece
        return head

    def _response(self, head: bytes) -> bytes:
        lines, end, _ = head.partition(_END_OF_HEAD)
        if not end or len(lines) > MAX_HEAD_BYTES:
            return _refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        line, *fields = lines.decode("latin-1").split("\r\n")
        words = line.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _refusal(HTTPStatus.BAD_REQUEST)
        method, target, _version = words
        path, _, query = target.partition("?")
        if path != PATH:
            return _refusal(HTTPStatus.NOT_FOUND)
        if method != "GET":
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED, [("Allow", "GET")])
        environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": query}
        for field in fields:
            name, _, value = field.partition(":")
            environ[f"HTTP_{name.upper().replace('-', '_')}"] = value.strip()
        try:
            return self._rendered(environ)
        except Exception:  # a metric that fails must not end the thread
            log.exception("metrics not served")
            return _refusal(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _rendered(self, environ: dict[str, str]) -> bytes:
        """Return the metrics in the format, compression and selection that the client asks for."""
        told: list[tuple[str, str]] = []

        def start_response(_status: str, headers: list[tuple[str, str]]) -> None:
            told.extend(headers)

        return _message(HTTPStatus.OK, told, b"".join(self._metrics(environ, start_response)))


def _refusal(status: HTTPStatus, headers: Iterable[tuple[str, str]] = ()) -> bytes:
    body = f"{status.phrase}\n".encode()
    return _message(status, [("Content-Type", "text/plain; charset=utf-8"), *headers], body)


def _message(status: HTTPStatus, headers: Iterable[tuple[str, str]], body: bytes) -> bytes:
    fields = [*headers, ("Content-Length", str(len(body))), ("Connection", "close")]
    head = "".join(f"{name}: {value}\r\n" for name, value in fields)
    return f"HTTP/1.1 {status.value} {status.phrase}\r\n{head}\r\n".encode("latin-1") + body


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait until they have ended."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    if ending:
        await asyncio.wait(ending)


def start_metrics_server(
    registry: CollectorRegistry, host: str, port: int, listener: socket.socket | None = None
) -> MetricsServer:
    """Serve `GET /metrics`; port 0 picks a free one. A `listener` already listens there.

    Raises:
        ConfigurationError: the port is taken, or the address cannot be listened on.
    """
    if listener is not None:
        return MetricsServer(registry, listener, host)
    try:
        listener = open_listener(host, port, backlog=_BACKLOG)
    except CannotListen as error:
        raise ConfigurationError(
            f"cannot serve metrics on {host}:{port}: {error}; choose another address with --metrics-host "
            "or GATEWAY_METRICS_HOST, or another port with --metrics-port or GATEWAY_METRICS_PORT (0 picks a free one, "
            "off disables metrics)"
        ) from None
    return MetricsServer(registry, listener, host)
