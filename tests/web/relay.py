"""A relay between two processes, which a test may let do anything to what it carries."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

Change: TypeAlias = Callable[[bytes], bytes | None]
"""Returns the bytes to carry instead of those that came; None cuts the connection behind the bytes before them."""


def _unchanged(data: bytes) -> bytes:
    return data


class Relay:
    """Carries connections on to a port of this machine.

    Attributes:
        port: where they end.
        connections: how many there were.
        requests: what each sent.
        change: what is done with answers.
    """

    def __init__(self) -> None:
        self.url = ""
        self.port = 0
        self.connections = 0
        self.requests: list[bytearray] = []
        self.change: Change = _unchanged
        self.tasks: set[asyncio.Task[None]] = set()

    def begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        request = bytearray()
        self.requests.append(request)

        def keep(data: bytes) -> bytes:
            request.extend(data)
            return data

        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self.port)
        ways = [
            asyncio.create_task(_carry(reader, inner_writer, keep)),
            asyncio.create_task(_carry(inner_reader, writer, self._changed)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.wait(ways)
            inner_writer.transport.abort()
            for each in (writer, inner_writer):
                each.close()
                with contextlib.suppress(OSError):
                    await each.wait_closed()

    def _changed(self, data: bytes) -> bytes | None:
        return self.change(data)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, change: Change) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            changed = change(data)
            if changed is None:
                return
            writer.write(changed)
            await writer.drain()


@contextlib.asynccontextmanager
async def relaying() -> AsyncIterator[Relay]:
    relay = Relay()
    server = await asyncio.start_server(relay.begin, "127.0.0.1", 0)
    relay.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield relay
    finally:
        server.close()
        async with asyncio.timeout(20):
            await asyncio.gather(*relay.tasks)  # they end with both processes
