"""A small HTTP/1.1 server that hands each request to a function, byte for byte, and sends whatever that wants.

Servers of tests must show what really arrived and be able to break every rule, so nothing here is a framework's. It
runs in a thread of the test, or as a process of its own that can be killed.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar, cast

import msgspec
import uvloop

HOST = "127.0.0.1"
Pair = tuple[str, str]
_Result = TypeVar("_Result")


@dataclass(eq=False)
class Exchange:
    """One request, and the means to answer it. It is `gone` if its client left before the answer was complete."""

    method: str
    path: str
    headers: tuple[Pair, ...]
    body: bytes
    connection: _Connection = field(repr=False)
    gone: bool = False
    begun: bool = False
    finished: bool = False

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)

    def reply(self, status: int, body: bytes = b"", headers: Iterable[Pair] = ()) -> None:
        self.head(status, [*headers, ("content-length", str(len(body)))])
        self.raw(body)
        self.finished = True

    def json(self, message: Any, status: int = 200, headers: Iterable[Pair] = ()) -> None:
        self.reply(status, msgspec.json.encode(message), [("content-type", "application/json"), *headers])

    def head(self, status: int, headers: Iterable[Pair]) -> None:
        self.begun = True
        lines = [f"HTTP/1.1 {status} Anything", *(f"{name}: {value}" for name, value in headers), "", ""]
        self.raw("\r\n".join(lines).encode("latin-1"))

    def begin_events(self) -> None:
        self.head(200, [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")])

    def event(self, message: Any) -> None:
        """Send a JSON-RPC message as an event; the first one begins the stream."""
        if not self.begun:
            self.begin_events()
        self.chunk(b"event: message\ndata: " + msgspec.json.encode(message) + b"\n\n")

    def chunk(self, data: bytes) -> None:
        self.raw(b"%x\r\n%s\r\n" % (len(data), data))

    def end_events(self) -> None:
        self.raw(b"0\r\n\r\n")
        self.finished = True

    def raw(self, data: bytes) -> None:
        self.connection.write(data)

    async def drain(self) -> None:
        """Wait until the client has read most of what was sent."""
        await asyncio.sleep(0)  # lets the loop notice that the client is gone
        await self.connection.writable.wait()

    def cut(self) -> None:
        self.connection.close()


Handler = Callable[[Exchange], Awaitable[None]]


class _Connection(asyncio.Protocol):
    def __init__(self, handler: Handler, connections: set[_Connection]) -> None:
        self._handler = handler
        self._connections = connections
        self._buffer = bytearray()
        self._exchange: Exchange | None = None
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self.writable = asyncio.Event()
        self.writable.set()
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's has another base
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self.writable.set()
        self.ended.set()
        if self._exchange is not None and self._task is not None:
            self._exchange.gone = True
            self._task.cancel()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._next()

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _next(self) -> None:
        """Begin the next request, if it is complete and none is under way."""
        if self._exchange is not None:
            return
        head_end = self._buffer.find(b"\r\n\r\n")
        if head_end < 0:
            return
        first, *lines = self._buffer[:head_end].decode("latin-1").split("\r\n")
        headers = tuple((name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines))
        length = next((int(value) for name, value in headers if name == "content-length"), 0)
        if len(self._buffer) < head_end + 4 + length:
            return
        method, path, _ = first.split(" ", 2)
        body = bytes(self._buffer[head_end + 4 : head_end + 4 + length])
        del self._buffer[: head_end + 4 + length]
        self._exchange = Exchange(method, path, headers, body, self)
        self._task = asyncio.create_task(self._serve(self._exchange))

    async def _serve(self, exchange: Exchange) -> None:
        await self._handler(exchange)
        self._exchange = self._task = None
        if exchange.finished:
            self._next()
        else:
            self.close()


class Served:
    """A context manager around its `server`."""

    server: PlainServer

    def __enter__(self) -> Self:
        self.server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.__exit__()

    @property
    def url(self) -> str:
        return self.server.url


class PlainServer:
    """Serves a function in a thread of its own while the context is open, and cancels it when the client goes."""

    def __init__(self, handler: Handler, port: int = 0) -> None:
        self._handler = handler
        self.port = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        self.run(self.listen())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/mcp"

    @property
    def connections(self) -> int:
        return len(self._connections)

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Run a coroutine in the server's loop, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    async def listen(self) -> None:
        """Accept connections, again if it had stopped."""
        loop = asyncio.get_running_loop()
        make = lambda: _Connection(self._handler, self._connections)  # noqa: E731
        self._server = await loop.create_server(make, HOST, self.port, reuse_port=False)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the listener and all connections, as a process does that is killed."""
        assert self._server is not None
        self._server.close()
        for connection in list(self._connections):
            assert connection._transport is not None
            connection._transport.abort()
        await self._server.wait_closed()
        await asyncio.gather(*(connection.ended.wait() for connection in list(self._connections)))


def serve_forever(handler: Handler, port: int) -> None:
    """Serve in this process until a signal ends it, and print `ready`."""

    async def serve() -> None:
        server = PlainServer(handler, port)
        ended = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        await server.listen()
        print(f"ready on {server.url}", flush=True)  # noqa: T201
        await ended.wait()

    uvloop.run(serve())
