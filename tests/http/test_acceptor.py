"""How connections are taken from a listening socket."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.http import acceptor
from gateway.http.acceptor import MOST_AT_ONCE, Acceptor
from tests.integration.fleet import Fleet


class Greeter(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(b"hello")
        transport.close()


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=MOST_AT_ONCE) as made:
        yield made


def connect(listening: socket.socket) -> socket.socket:
    client = socket.create_connection(listening.getsockname(), timeout=20)
    client.setblocking(False)
    return client


async def read(client: socket.socket) -> bytes:
    with client:
        return await asyncio.get_running_loop().sock_recv(client, 100)


async def test_all_waiting_connections_are_accepted_in_one_round(listening: socket.socket) -> None:
    clients = [connect(listening) for _ in range(50)]
    made: list[Greeter] = []

    def make() -> Greeter:
        made.append(Greeter())
        return made[-1]

    loop = asyncio.get_running_loop()
    accepting = Acceptor([listening], make, loop)
    accepting._accept(listening)
    await asyncio.sleep(0)
    assert len(made) == len(clients)
    assert [await read(client) for client in clients] == [b"hello"] * len(clients)
    accepting.close()


async def test_a_closed_one_takes_nobody(listening: socket.socket) -> None:
    accepting = Acceptor([listening], Greeter, asyncio.get_running_loop())
    accepting.close()
    with connect(listening) as client, pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await asyncio.get_running_loop().sock_recv(client, 100)


class Full:
    """A listening socket for which the system has no descriptor left."""

    def __init__(self, listening: socket.socket) -> None:
        self.listening = listening
        self.refused = 0

    def accept(self) -> tuple[socket.socket, object]:
        if self.refused:
            return self.listening.accept()
        self.refused += 1
        raise OSError(errno.EMFILE, "Too many open files")

    def fileno(self) -> int:
        return self.listening.fileno()

    def setblocking(self, flag: bool) -> None:
        self.listening.setblocking(flag)


async def test_without_room_it_pauses_instead_of_spinning_and_then_continues(
    listening: socket.socket, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "PAUSE_SECONDS", 0.05)
    full = Full(listening)
    accepting = Acceptor([full], Greeter, asyncio.get_running_loop())  # type: ignore[list-item]
    with caplog.at_level(logging.WARNING):
        assert await read(connect(listening)) == b"hello"
    assert full.refused == 1
    assert [record.getMessage() for record in caplog.records] == ["no room for another connection"]
    accepting.close()


def test_a_replica_serves_two_hundred_clients_that_connect_at_once(tmp_path: Path) -> None:
    with Fleet(tmp_path, {}, names=("r1",)) as fleet:
        clients = [socket.create_connection(fleet["r1"].address, timeout=20) for _ in range(200)]
        for client in clients:
            client.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        for client in clients:
            with client:
                assert client.makefile("rb").readline() == b"HTTP/1.1 200 OK\r\n"
