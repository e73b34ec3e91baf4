"""One replica inside this process: all of it except the operating system's sockets.

Bytes go to the connection object that the server makes for each client, and come from the transport that it writes
to. The event loop is the one of production.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from typing import Any, Protocol, Self

import uvicorn

from bench.clients import Answer, WrongAnswer
from bench.load import END_OF_HEAD, OK
from gateway.process.app import GatewayApp, make_server
from gateway.process.replica import Services

PORT = 8080
"""The port that clients claim to be connected to."""


TURNS_AFTERWARDS = 3
"""The rounds of the event loop after which the remains of a request, such as a cancelled task, are gone."""


class Meter(Protocol):
    """Counts what happens between `start` and `stop`."""

    def start(self) -> None:
        """Start counting."""

    def stop(self) -> None:
        """Stop counting."""


class _Turn:
    """An awaitable that waits for a moment, then lets the event loop do everything else that is ready."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __await__(self) -> Generator[None, None, None]:
        if self._seconds:
            time.sleep(self._seconds)
        yield


class _Client(asyncio.Transport):
    """The other end of a connection; it keeps the bytes that are written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 50000), "sockname": ("127.0.0.1", PORT)})
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Replica:
    """A replica with one client on a kept-alive connection.

    Attributes:
        patience_seconds: how long each round of the event loop waits for others, such as a task store.
    """

    def __init__(self, services: Services) -> None:
        self.services = services
        self.patience_seconds = 0.0
        self._app = GatewayApp(services)
        self._server = make_server(services, self._app)
        self._client = _Client()
        self._protocol: Any = None
        self._others: list[Any] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Start it, and stop it at the end."""
        config = self._server.config
        config.load()
        await uvicorn.Server.on_tick(self._server, 0)  # makes the `Date` header; ours would miss further ticks
        self._server.lifespan = lifespan = config.lifespan_class(config)
        await lifespan.startup()
        self._protocol = self._connect(self._client)
        try:
            yield self
        finally:
            for protocol in (self._protocol, *self._others):
                protocol.connection_lost(None)
            await lifespan.shutdown()

    def _connect(self, client: _Client) -> Any:
        protocol = self._server.make_connection()
        protocol.connection_made(client)
        return protocol

    async def keep_open(self, request: bytes) -> None:
        """Let another client open a stream, which stays open, on a separate connection.

        Raises:
            WrongAnswer: the answer is not a stream.
        """
        client = _Client()
        protocol = self._connect(client)
        self._others.append(protocol)
        protocol.data_received(request)
        while not client.written:
            await _Turn(0.0)
        if not client.written[0].startswith(OK):
            raise WrongAnswer(f"expected a stream, got {client.written[0][:300]!r}")

    async def exchange(self, request: bytes, meter: Meter | None = None) -> Answer:
        """Send a request, and return the answer once all work for it is over.

        Args:
            request: head and body.
            meter: counts the replica's work for it.
        """
        turn = _Turn(self.patience_seconds)
        self._client.written.clear()
        if meter is not None:
            meter.start()
        try:
            self._protocol.data_received(request)
            while self._protocol.cycle is None or not self._protocol.cycle.response_complete:
                await turn
            while len(self._server.server_state.tasks) > len(self._others):
                await turn
            for _ in range(TURNS_AFTERWARDS):
                await turn
        finally:
            if meter is not None:
                meter.stop()
        head, _, body = b"".join(self._client.written).partition(END_OF_HEAD)
        return Answer(int(head[9:12]), body)
