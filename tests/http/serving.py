"""A server that serves an application of its own choice in a thread, and clients that speak bytes."""

from __future__ import annotations

import asyncio
import http.client
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from gateway.http.asgi import AsgiApp, Scope
from gateway.http.callbacks import Callbacks, Cause
from gateway.http.draining_server import DrainingServer
from gateway.http.limits import Limits

LIMITS = Limits(
    max_connections=20,
    max_header_bytes=2000,
    max_headers=20,
    max_message_bytes=100_000,
    head_seconds=60,
    body_seconds=60,
    unread_seconds=60,
    silent_seconds=60,
    max_unread_bytes=100_000_000,
    idle_seconds=60,
)
PATIENCE_SECONDS = 30.0


@dataclass
class Reports:
    """The events that a server has reported.

    Attributes:
        arrived: the scopes of requests.
        late: the paths of requests with an incomplete body, each time a part arrived.
        causes: why clients were refused.
        rejected: how many connections were closed immediately.
    """

    arrived: list[Scope] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    causes: list[Cause] = field(default_factory=list)
    rejected: int = 0

    def callbacks(self) -> Callbacks:
        return Callbacks(
            arrived=self.arrived.append,
            still_arriving=lambda scope: self.late.append(scope["path"]),
            connection_refused=self._reject,
            client_refused=self.causes.append,
        )

    def _reject(self) -> None:
        self.rejected += 1


@dataclass
class Serving:
    """A running server, with its event loop and what it has reported."""

    server: DrainingServer
    port: int
    reports: Reports
    thread: threading.Thread
    loop: asyncio.AbstractEventLoop

    @property
    def connections(self) -> list[Any]:
        return list(self.server.server_state.connections)

    def stop(self) -> None:
        """Shut the server down, as SIGTERM does."""
        self.server.handle_exit(signal.SIGTERM, None)

    def join(self) -> bool:
        """Wait until it has ended; return whether that was cleanly."""
        self.thread.join(PATIENCE_SECONDS)
        assert not self.thread.is_alive()
        return not self.server.force_exit

    def connect(self, *, receive_buffer: int | None = None) -> socket.socket:
        client = socket.socket()
        if receive_buffer is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        client.settimeout(PATIENCE_SECONDS)
        client.connect(("127.0.0.1", self.port))
        return client

    def send(self, data: bytes) -> bytes:
        """Send bytes on a new connection; return all that comes until it is closed."""
        with self.connect() as client:
            client.sendall(data)
            return read_all(client)

    @contextmanager
    def client(self) -> Iterator[http.client.HTTPConnection]:
        """Give a client of the standard library, with one connection that is kept alive."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)) as client:
            yield client


@contextmanager
def serving(app: AsgiApp, limits: Limits = LIMITS, *, drain_seconds: float = 60, **options: Any) -> Iterator[Serving]:
    """Serve an application until the context ends, or it was stopped before."""
    reports, started = Reports(), threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def noting_the_loop(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            loops.append(asyncio.get_running_loop())
            started.set()
        await app(scope, receive, send)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = DrainingServer(
            noting_the_loop, limits=limits, callbacks=reports.callbacks(), drain_seconds=drain_seconds, **options
        )
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        assert started.wait(PATIENCE_SECONDS)
        running = Serving(server, listener.getsockname()[1], reports, thread, loops[0])
        try:
            yield running
        finally:
            if thread.is_alive():
                server.force_exit = True
                running.stop()
                running.join()


def read_all(client: socket.socket) -> bytes:
    """Return all that comes until the connection is closed, in whichever way."""
    parts = []
    try:
        while part := client.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
