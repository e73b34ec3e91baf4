"""A round-robin front for development: one port with several replicas behind it.

Of HTTP, it reads only the request line. Then the connection goes to the next replica, and bytes are copied both ways
until one side is done. Replicas close each connection after one response, so requests always alternate between them.
In production, use a real load balancer.

A request to `/playground/replicas/<id>/mcp` goes to that replica. Requests below `/playground/fleet` are answered by
the parent itself.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, TypeAlias

from gateway.runtime.background import task_running

_CHUNK_BYTES: Final = 65536
_CONNECT_SECONDS: Final = 5.0
_LINGER_SECONDS: Final = 2.0
_NOBODY_THERE: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\nretry-after: 1\r\n\r\n"
)

NOT_FOUND: Final = b"HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"

FLEET: Final = b"/playground/fleet"
"""The path of requests about the processes themselves, which the parent answers."""

REPLICAS: Final = b"/playground/replicas/"
"""The path of requests to one replica."""

ENDPOINT: Final = b"mcp"
"""The only path that a request to one replica can reach there."""

_MAX_LINE_BYTES: Final = 16384
_LINE_SECONDS: Final = 10.0
_MAX_CONNECTIONS: Final = 400
"""How many clients may be connected. Each takes two descriptors, of which a process has 1,024 by default."""
_PARTS_OF_REQUEST_LINE: Final = 3

log = logging.getLogger(__name__)

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


Address: TypeAlias = tuple[str, int]


class Backends:
    """The processes behind the front. Unless a method says otherwise, they never change and nobody controls them."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._addresses = tuple(addresses)

    def addresses(self) -> Sequence[Address]:
        """Return the addresses of the replicas that should get requests."""
        return self._addresses

    def address_of(self, _name: str) -> Address | None:
        """Return the address of one replica, or None if there is none with that name."""
        return None

    async def answer(self, _head: bytes, client: Stream) -> None:
        """Answer a request about the processes themselves, of which the head was read, and close the connection."""
        client[1].write(NOT_FOUND)
        await finish(client)


class Front:
    """Connects each client to the next replica; `close` closes the listener."""

    def __init__(self, backends: Backends | Sequence[Address], listener: socket.socket) -> None:
        self._backends = Backends(backends) if isinstance(backends, Sequence) else backends
        self._next = 0
        self._listener = listener
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Start accepting connections."""
        self._server = await asyncio.start_server(self._accept, sock=self._listener)

    def stop_listening(self) -> None:
        """Accept no more connections; open ones continue."""
        if self._server is not None:
            self._server.close()

    async def close(self) -> None:
        """Stop listening, close the remaining connections, and wait until their tasks have ended."""
        if self._server is None:
            return
        self._server.close()
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= _MAX_CONNECTIONS:
            writer.transport.abort()
            return
        connection = asyncio.create_task(self._handle((reader, writer)))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _handle(self, client: Stream) -> None:
        # Without a buffer, `drain` waits until the kernel has everything, so the `abort` below loses nothing.
        transport = client[1].transport
        transport.set_write_buffer_limits(high=0)
        try:
            await self._serve(client)
        except OSError as error:
            log.debug("connection lost", extra={"reason": type(error).__name__})
        finally:
            transport.abort()

    async def _serve(self, client: Stream) -> None:
        # Choose a replica only when there is something to send, so an idle connection does not use up a turn.
        first = await _read_line(client[0])
        if not first:
            return
        path = _path_of(first)
        if path == FLEET or path.startswith((FLEET + b"/", FLEET + b"?")):
            await self._backends.answer(first, client)
            return
        if path.startswith(REPLICAS):
            name, _, rest = path.removeprefix(REPLICAS).partition(b"/")
            if rest.partition(b"?")[0] != ENDPOINT:
                client[1].write(NOT_FOUND)
                await finish(client)
                return
            method, _, others = first.partition(b" ")
            first = method + b" /" + rest + others.removeprefix(path)
            address = self._backends.address_of(name.decode("latin-1"))
            replica = None if address is None else await self._connect([address])
        else:
            replica = await self._connect(self._in_turn())
        if replica is None:
            client[1].write(_NOBODY_THERE)
            await finish(client)
            return
        try:
            replica[1].write(first)
            await _splice(client, replica)
        finally:
            replica[1].transport.abort()

    def _in_turn(self) -> list[Address]:
        """Return the addresses of the replicas, the one whose turn it is first."""
        replicas = list(self._backends.addresses())
        if not replicas:
            return []
        start = self._next % len(replicas)
        self._next = start + 1
        return replicas[start:] + replicas[:start]

    async def _connect(self, replicas: Sequence[Address]) -> Stream | None:
        for host, port in replicas:
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    return await asyncio.open_connection(host, port)
            except (OSError, TimeoutError) as error:
                log.debug("replica not reachable", extra={"port": port, "reason": type(error).__name__})
        return None


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    """Return what a client has sent, once it contains a whole line; what was sent so far if the line is too long.

    A client that is too slow has sent nothing.
    """
    read = b""
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINE_SECONDS):
            while b"\n" not in read and len(read) < _MAX_LINE_BYTES:
                more = await reader.read(_CHUNK_BYTES)
                if not more:
                    break
                read += more
            return read
    return b""


def _path_of(head: bytes) -> bytes:
    """Return the target of a request line (RFC 9112 section 3), or b""."""
    parts = head.partition(b"\n")[0].split(b" ")
    return parts[1] if len(parts) == _PARTS_OF_REQUEST_LINE else b""


async def _splice(client: Stream, replica: Stream) -> None:
    """Copy both ways until the replica has sent everything."""
    async with task_running(_send_requests(client[0], replica[1])):
        await _copy(replica[0], client[1])
    await finish(client)


async def _send_requests(client: asyncio.StreamReader, replica: asyncio.StreamWriter) -> None:
    """Copy what the client sends, and end the replica's stream the same way: half-closed or aborted."""
    try:
        await _copy(client, replica)
        if replica.can_write_eof():
            replica.write_eof()
    except OSError:
        replica.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy to the end of the stream, no faster than the receiver reads."""
    while data := await reader.read(_CHUNK_BYTES):
        writer.write(data)
        await writer.drain()


async def finish(client: Stream) -> None:
    """Close the connection to the client without losing the end of the response.

    Closing a socket that holds unread bytes resets the connection, and a reset may discard bytes that the client has
    not read yet. So send the end of the stream, then keep reading until the client closes too, for a bounded time.
    """
    reader, writer = client
    await writer.drain()
    writer.write_eof()
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_SECONDS):
            while await reader.read(_CHUNK_BYTES):
                pass
