"""Servers that send whatever a test wants, and remember what they received."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gateway.http_client.client import HttpClient

SECONDS = 20.0
"""Longer than any test takes: a deadline that is never reached."""

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class Received:
    line: str
    headers: list[tuple[str, str]]
    body: bytes

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]


@dataclass
class Talk:
    """A server's side of one connection."""

    peer: Peer
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    is_over: asyncio.Event = field(default_factory=asyncio.Event)

    async def request(self) -> Received:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        line, *fields = head[:-4].split("\r\n")
        headers = [(name, value.strip()) for name, _, value in (text.partition(":") for text in fields)]
        received = Received(line, headers, b"")
        for length in received.values("content-length"):
            received.body = await self.reader.readexactly(int(length))
        self.peer.requests.append(received)
        return received

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def until_closed(self) -> None:
        with suppress(ConnectionError):
            while await self.reader.read(65536):
                pass
        self.is_over.set()


Script: TypeAlias = Callable[[Talk], Awaitable[None]]


@dataclass
class Peer:
    port: int = 0
    requests: list[Received] = field(default_factory=list)
    talks: list[Talk] = field(default_factory=list)
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    clients: list[HttpClient] = field(default_factory=list)

    def closing(self, client: HttpClient) -> HttpClient:
        """Close a client before the server."""
        self.clients.append(client)
        return client

    def url(self, scheme: str = "http", host: str = "127.0.0.1", path: str = "/mcp") -> str:
        return f"{scheme}://{host}:{self.port}{path}"


@asynccontextmanager
async def serving(script: Script, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> AsyncIterator[Peer]:
    """Run a script for each connection; a script that returns closes its connection."""
    peer = Peer()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        peer.tasks.add(task)
        talk = Talk(peer, reader, writer)
        peer.talks.append(talk)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await script(talk)
        finally:
            talk.is_over.set()
            writer.close()
            peer.tasks.discard(task)

    server = await asyncio.start_server(converse, host, 0, ssl=tls)
    peer.port = server.sockets[0].getsockname()[1]
    try:
        yield peer
    finally:
        for client in peer.clients:
            await client.aclose()
        server.close()
        left = list(peer.tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


def always(*pieces: bytes) -> Script:
    """Answer each request with the same bytes, piece by piece, and keep the connection open."""

    async def script(talk: Talk) -> None:
        while True:
            await talk.request()
            for piece in pieces:
                await talk.send(piece)

    return script


def once(*pieces: bytes) -> Script:
    """Answer one request with these bytes, and close the connection."""

    async def script(talk: Talk) -> None:
        await talk.request()
        for piece in pieces:
            await talk.send(piece)

    return script


def then_silence(*pieces: bytes) -> Script:
    """Answer one request with these bytes, and send nothing more."""

    async def script(talk: Talk) -> None:
        await talk.request()
        for piece in pieces:
            await talk.send(piece)
        await talk.until_closed()

    return script


def soon(seconds: float = SECONDS) -> float:
    return asyncio.get_running_loop().time() + seconds


async def ask(client: HttpClient, body: bytes = b"{}", *, seconds: float = SECONDS, limit: int = 1 << 20) -> bytes:
    """Post a body, and return that of a 200 response."""
    async with client.post([(b"Content-Type", b"application/json")], body, deadline=soon(seconds)) as response:
        assert response.status == 200
        return await response.body(limit)
