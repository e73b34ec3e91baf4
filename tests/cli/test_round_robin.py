"""The development front, over real sockets."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest

from gateway.cli.round_robin import Backends, Front
from gateway.web.listener import listen

pytestmark = pytest.mark.usefixtures("only_new_objects")

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Address = tuple[str, int]

BIG = 8 * 1024 * 1024


@asynccontextmanager
async def replica(handler: Handler) -> AsyncIterator[Address]:
    tasks: list[asyncio.Task[None]] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await handler(reader, writer)
        writer.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.create_task(handle(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()
    await asyncio.gather(*tasks)


@asynccontextmanager
async def front_of(*addresses: Address, send_buffer_bytes: int | None = None) -> AsyncIterator[Address]:
    listener = listen("127.0.0.1", 0)
    if send_buffer_bytes is not None:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    address = listener.getsockname()
    front = Front(addresses, listener)
    await front.start()
    try:
        yield address
    finally:
        await front.close()


@asynccontextmanager
async def client_of(address: Address) -> AsyncIterator[Stream]:
    reader, writer = await asyncio.open_connection(*address)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


@asynccontextmanager
async def raw_client_of(address: Address, receive_buffer_bytes: int | None = None) -> AsyncIterator[socket.socket]:
    with socket.socket() as client:
        if receive_buffer_bytes is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, address)
        yield client


def named(name: bytes) -> Handler:
    """Answer one line with a name, and close, as a replica does."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(name)
        await writer.drain()
        writer.write_eof()
        await reader.read()

    return handle


@pytest.fixture(autouse=True)
async def nothing_goes_unnoticed() -> AsyncIterator[None]:
    """Fail a test if its tasks ended with an error that nobody handled."""
    noticed: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: noticed.append(context))
    yield
    gc.collect()
    assert noticed == []


async def ask(address: Address) -> bytes:
    async with client_of(address) as (reader, writer):
        writer.write(b"who?\n")
        answer = await reader.read()
        writer.write_eof()
        return answer


def refusing_address() -> Address:
    with listen("127.0.0.1", 0) as closed:
        host, port = closed.getsockname()
        return host, port


async def only_this_test_runs() -> None:
    """Wait until no other task is left. If one leaks, the test times out."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)


async def test_requests_alternate_between_the_replicas() -> None:
    async with AsyncExitStack() as stack:
        addresses = [await stack.enter_async_context(replica(named(name))) for name in (b"1", b"2", b"3")]
        address = await stack.enter_async_context(front_of(*addresses))
        assert [await ask(address) for _ in range(6)] == [b"1", b"2", b"3"] * 2


async def test_a_connection_that_says_nothing_takes_no_turn() -> None:
    async with replica(named(b"1")) as one, replica(named(b"2")) as two, front_of(one, two) as address:
        for expected in (b"1", b"2"):
            async with client_of(address) as (reader, writer):
                writer.write_eof()
                assert await reader.read() == b""
            assert await ask(address) == expected


async def test_a_replica_that_refuses_is_passed_over() -> None:
    async with replica(named(b"1")) as alive, front_of(refusing_address(), alive) as address:
        assert [await ask(address) for _ in range(3)] == [b"1"] * 3


async def test_without_any_replica_the_client_gets_503() -> None:
    async with front_of(refusing_address(), refusing_address()) as address:
        answer = await ask(address)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nretry-after: 1\r\n" in answer


async def test_a_large_request_and_a_large_response_arrive_whole() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = await reader.readexactly(BIG)
        writer.write(body[::-1])
        await writer.drain()

    body = bytes(range(256)) * (BIG // 256)
    async with replica(handle) as backend, front_of(backend) as address, client_of(address) as (reader, writer):
        writer.write(body)
        assert await reader.read() == body[::-1]


async def test_a_slow_client_that_has_sent_everything_still_gets_the_whole_response() -> None:
    size = 100_000
    sent = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read() == b"request"
        writer.write(b"x" * size)
        await writer.drain()
        writer.write_eof()
        sent.set()
        await reader.read()

    received = 0
    async with (
        replica(handle) as backend,
        front_of(backend, send_buffer_bytes=4096) as address,
        raw_client_of(address, receive_buffer_bytes=4096) as client,
    ):
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, b"request")
        client.shutdown(socket.SHUT_WR)
        await sent.wait()
        while data := await loop.sock_recv(client, 1024):
            received += len(data)
            await asyncio.sleep(0)
    assert received == size


async def test_a_client_may_send_everything_before_it_reads_the_refusal() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.write(b"refused")
        await writer.drain()
        writer.write_eof()
        while await reader.read(65536):
            pass

    async with replica(handle) as backend, front_of(backend) as address, raw_client_of(address) as client:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, b"x" * 4 * BIG)
        client.shutdown(socket.SHUT_WR)
        assert await loop.sock_recv(client, 100) == b"refused"


async def test_a_receiver_that_does_not_read_holds_back_the_sender() -> None:
    sent = 0
    stalled = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readline()
        with suppress(TimeoutError):
            while sent < 64 * BIG:
                writer.write(b"x" * 65536)
                sent += 65536
                await asyncio.wait_for(writer.drain(), 0.5)
        stalled.set()

    async with replica(handle) as backend, front_of(backend) as address, client_of(address) as (_, writer):
        writer.write(b"go\n")
        await stalled.wait()
        assert sent < 64 * BIG


async def test_bytes_pass_while_both_sides_stay_open() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line.upper())

    async with replica(handle) as backend, front_of(backend) as address, client_of(address) as (reader, writer):
        for line in (b"one\n", b"two\n"):
            writer.write(line)
            assert await reader.readline() == line.upper()


@pytest.mark.parametrize("linger", [None, struct.pack("ii", 1, 0)], ids=["closed", "reset"])
async def test_a_client_that_disconnects_ends_its_stream_at_the_replica(linger: bytes | None) -> None:
    ended = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"event\n")
        with suppress(OSError):
            await reader.read()
        ended.set()

    async with replica(handle) as backend, front_of(backend) as address:
        async with client_of(address) as (reader, writer):
            writer.write(b"listen\n")
            await reader.readline()
            if linger is not None:
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        await ended.wait()


async def test_a_replica_that_dies_ends_the_stream_at_the_client() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"begin\n")
        await writer.drain()
        writer.transport.abort()

    async with replica(handle) as backend, front_of(backend) as address, client_of(address) as (reader, writer):
        writer.write(b"go\n")
        assert await reader.readline() == b"begin\n"
        with suppress(ConnectionResetError):
            assert await reader.read() == b""


async def test_no_task_is_left_after_a_connection() -> None:
    async with replica(named(b"1")) as backend, front_of(backend) as address:
        await ask(address)
        await only_this_test_runs()


async def test_closing_closes_open_connections_and_leaves_no_task() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"begin\n")
        await reader.read()

    async with replica(handle) as backend:
        async with front_of(backend) as address:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"go\n")
            await reader.readline()
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*address)
        writer.transport.abort()
        await only_this_test_runs()


async def test_a_front_that_stops_listening_finishes_what_is_open() -> None:
    go_on = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"begin\n")
        await go_on.wait()
        writer.write(b"end\n")
        await writer.drain()

    async with replica(handle) as backend:
        listener = listen("127.0.0.1", 0)
        address = listener.getsockname()
        front = Front([backend], listener)
        await front.start()
        async with client_of(address) as (reader, writer):
            writer.write(b"go\n")
            await reader.readline()
            front.stop_listening()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(*address)
            go_on.set()
            assert await reader.readline() == b"end\n"
        await front.close()


class Named(Backends):
    """One replica with the name r1."""

    def address_of(self, name: str) -> Address | None:
        return self.addresses()[0] if name == "r1" else None


@asynccontextmanager
async def named_front() -> AsyncIterator[Address]:
    """Run a front whose only replica answers with the request line that it got."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + await reader.readline())
        await writer.drain()

    listener = listen("127.0.0.1", 0)
    async with replica(echo) as address:
        front = Front(Named([address]), listener)
        await front.start()
        try:
            yield listener.getsockname()
        finally:
            await front.close()


@pytest.mark.parametrize(
    ("target", "answer"),
    [
        (b"/playground/replicas/r1/mcp", b"POST /mcp HTTP/1.1\r\n"),
        (b"/playground/replicas/r1/mcp?a=1", b"POST /mcp?a=1 HTTP/1.1\r\n"),
        (b"/playground/replicas/r1/", b""),
        (b"/playground/replicas/r1/readyz", b""),
        (b"/playground/replicas/r1/../../mcp", b""),
        (b"/playground/replicas/r1/mcp/../x", b""),
        (b"/playground/replicas/r1/playground/fleet", b""),
        (b"/playground/replicas/r2/mcp", b""),
        (b"/playground/replicas/..%2fr1/mcp", b""),
        (b"http://127.0.0.1/playground/fleet", b"POST http://127.0.0.1/playground/fleet HTTP/1.1\r\n"),
        (b"/playground/%66leet", b"POST /playground/%66leet HTTP/1.1\r\n"),
        (b"/x/../playground/fleet", b"POST /x/../playground/fleet HTTP/1.1\r\n"),
    ],
    ids=str,
)
async def test_only_the_endpoint_of_a_replica_can_be_addressed(target: bytes, answer: bytes) -> None:
    async with named_front() as address, client_of(address) as (reader, writer):
        writer.write(b"POST " + target + b" HTTP/1.1\r\n\r\n")
        writer.write_eof()
        response = await reader.read()
        assert response.partition(b"\r\n\r\n")[2] == answer
        assert response.startswith(b"HTTP/1.1 200" if answer else (b"HTTP/1.1 404", b"HTTP/1.1 503"))


async def test_no_more_clients_are_connected_than_there_are_descriptors_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.cli.round_robin._MAX_CONNECTIONS", 2)
    monkeypatch.setattr("gateway.cli.round_robin._LINE_SECONDS", 600)  # so that nothing else ends a connection
    async with named_front() as address, client_of(address) as (_, first), client_of(address):
        async with client_of(address) as (reader, _):
            async with asyncio.timeout(30):
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
        first.close()
        await first.wait_closed()
        async with asyncio.timeout(30):
            while True:
                async with client_of(address) as (reader, writer):
                    with suppress(ConnectionResetError):
                        writer.write(b"GET /playground/replicas/r1/mcp HTTP/1.1\r\n\r\n")
                        writer.write_eof()
                        if await reader.read():
                            break


async def test_a_client_that_never_ends_its_first_line_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.cli.round_robin._LINE_SECONDS", 0.05)
    async with named_front() as address, client_of(address) as (reader, writer):
        writer.write(b"POST /mcp")
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
