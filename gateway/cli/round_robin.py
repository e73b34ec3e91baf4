"""A round-robin front for development: one port with several replicas behind it.

It knows nothing about HTTP. As soon as a client sends something, its connection goes to the next replica, and bytes
are copied both ways until one side is done. Replicas close each connection after one response, so requests always
alternate between them. In production, use a real load balancer.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from gateway.runtime.background import task_running

_CHUNK_BYTES: Final = 65536
_CONNECT_SECONDS: Final = 5.0
_LINGER_SECONDS: Final = 2.0
_NOBODY_THERE: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\nretry-after: 1\r\n\r\n"
)

log = logging.getLogger(__name__)

_Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Front:
    """Connects each client to the next replica.

    Args:
        replicas: the addresses (host, port) of the replicas.
        listener: the socket to accept connections on; `close` closes it.
    """

    def __init__(self, replicas: Sequence[tuple[str, int]], listener: socket.socket) -> None:
        self._replicas = tuple(replicas)
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
        connection = asyncio.create_task(self._handle((reader, writer)))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _handle(self, client: _Stream) -> None:
        # Without a buffer, `drain` waits until the kernel has everything, so the `abort` below loses nothing.
        transport = client[1].transport
        transport.set_write_buffer_limits(high=0)
        try:
            await self._serve(client)
        except OSError as error:
            log.debug("connection lost", extra={"reason": type(error).__name__})
        finally:
            transport.abort()

    async def _serve(self, client: _Stream) -> None:
        # Choose a replica only when there is something to send, so an idle connection does not use up a turn.
        first = await client[0].read(_CHUNK_BYTES)
        if not first:
            return
        replica = await self._connect()
        if replica is None:
            client[1].write(_NOBODY_THERE)
            await _finish(client)
            return
        try:
            replica[1].write(first)
            await _splice(client, replica)
        finally:
            replica[1].transport.abort()

    async def _connect(self) -> _Stream | None:
        start, self._next = self._next, (self._next + 1) % len(self._replicas)
        for host, port in self._replicas[start:] + self._replicas[:start]:
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    return await asyncio.open_connection(host, port)
            except (OSError, TimeoutError) as error:
                log.debug("replica not reachable", extra={"port": port, "reason": type(error).__name__})
        return None


async def _splice(client: _Stream, replica: _Stream) -> None:
    """Copy both ways until the replica has sent everything."""
    async with task_running(_send_requests(client[0], replica[1])):
        await _copy(replica[0], client[1])
    await _finish(client)


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


async def _finish(client: _Stream) -> None:
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
