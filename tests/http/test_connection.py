"""The requests that a connection passes to the application, and when it is closed: any bytes in, no sockets."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import socket
import struct
from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass, field, replace
from time import thread_time
from typing import Any

import msgspec
import pytest
import uvloop
from uvicorn.server import ServerState

from gateway.http.asgi import RawHeaders
from gateway.http.connection import (
    MAX_PIPELINED,
    MAX_SMALL_PARTS,
    MAX_UNFINISHED_HEAD_BYTES,
    Connection,
    ConnectionRules,
)
from gateway.http.cycle import MAX_REMEMBERED_BYTES, MAX_UNREAD_BYTES, Cycle, header_line
from gateway.http.limits import Limits
from gateway.http.shortcut import SHORTCUT
from gateway.http.slow_clients import LONGEST_STEP_SECONDS, SWEEP_SECONDS, Sweeper
from gateway.observability.metrics import RefusalReason, Telemetry
from gateway.process.app import make_server
from gateway.web.origins import OriginPolicy
from gateway.web.server_callbacks import server_callbacks
from tests.asgi import make_app
from tests.integration.raw import head_of, tool_call

LIMITS = Limits(
    max_connections=3,
    max_header_bytes=2000,
    max_headers=20,
    max_message_bytes=10_000,
    head_seconds=10,
    body_seconds=20,
    unread_seconds=30,
    silent_seconds=12,
    max_unread_bytes=200_000,
    idle_seconds=5,
)
HEAD = b"POST /mcp HTTP/1.1\r\nHost: here\r\n"
HELLO = HEAD + b"Content-Length: 5\r\n\r\nhello"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
_STATUS = re.compile(rb"^HTTP/1\.1 (\d{3}) ", re.MULTILINE)


class Transport(asyncio.Transport):
    """The end of a connection that a client has in hand."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False
        self.paused = False
        self.unread = 0

    def write(self, data: Any) -> None:
        assert not self.closed, "written after it was closed"
        self.written += bytes(data)

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return self.unread

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    @property
    def statuses(self) -> list[int]:
        return [int(status) for status in _STATUS.findall(self.written)]

    @property
    def error(self) -> str:
        """The message of a refusal, which is the last answer and complete."""
        head, _, body = self.written[self.written.rindex(b"HTTP/1.1 ") :].partition(b"\r\n\r\n")
        assert b"\r\nconnection: close" in head
        assert b"\r\nx-gateway-replica: r1" in head
        assert b"\r\ncontent-length: %d" % len(body) in head
        message = json.loads(body)
        assert message["error"]["code"] == -32600
        assert message["id"] is None
        told = message["error"]["message"]
        assert isinstance(told, str)
        return told


PAGES = OriginPolicy(None, ("https://app.example.com",), loopback=False)
"""The pages that may call."""


@dataclass
class Server:
    """A server whose application answers each request with 200 when it has read its body, or when it is let.

    Attributes:
        reads: whether the application reads bodies.
        hold: what it waits for before each answer, if anything.
        served: the head and body of each request that it has read as a whole.
        begun: the scope of each request that it was given.
        gone: how many requests were gone before their end.
        heads: the scope of each request whose head is complete, noted before it is given to anybody.
        last_values: the last value of each header of these requests.
        late: the scope of a request, each time a part of it came that was not the last.
    """

    limits: Limits = LIMITS
    reads: bool = True
    hold: asyncio.Event | None = None
    served: list[tuple[MutableMapping[str, Any], bytes]] = field(default_factory=list)
    begun: list[MutableMapping[str, Any]] = field(default_factory=list)
    gone: int = 0
    heads: list[MutableMapping[str, Any]] = field(default_factory=list)
    last_values: list[dict[bytes, bytes]] = field(default_factory=list)
    late: list[MutableMapping[str, Any]] = field(default_factory=list)
    telemetry: Telemetry = field(default_factory=Telemetry)
    state: ServerState = field(default_factory=ServerState)

    def __post_init__(self) -> None:
        self.rules = ConnectionRules(
            self.limits, server_callbacks(self.telemetry, self.arrived, self.still_arriving, PAGES, replica_id="r1")
        )

    def connect(self) -> tuple[Connection, Transport]:
        connection, transport = Connection(self.rules, self.app, self.state, {}), Transport()
        connection.connection_made(transport)
        return connection, transport

    def arrived(self, scope: MutableMapping[str, Any]) -> None:
        self.heads.append(scope)
        self.last_values.append(scope[SHORTCUT].last_values)

    def still_arriving(self, scope: MutableMapping[str, Any]) -> None:
        self.late.append(scope)

    async def app(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        self.begun.append(scope)
        body = b""
        while self.reads:
            event = await receive()
            if event["type"] == "http.disconnect":
                self.gone += 1
                return
            body += event["body"]
            if not event["more_body"]:
                break
        if self.hold is not None:
            await self.hold.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})
        self.served.append((scope, body))

    async def let_go(self) -> None:
        assert self.hold is not None
        self.hold.set()
        await settle()

    def refused(self, reason: RefusalReason) -> float:
        value = self.telemetry.registry.get_sample_value("gateway_requests_refused_total", {"reason": reason.value})
        assert value is not None
        return value


async def settle() -> None:
    """Let everything that is ready run, and what becomes ready by that."""
    loop: Any = asyncio.get_running_loop()
    await asyncio.sleep(0)
    while loop._ready:  # noqa: ASYNC110 - nothing announces that it is empty
        await asyncio.sleep(0)


async def feed(server: Server, *chunks: bytes) -> tuple[Connection, Transport]:
    """Send chunks on a new connection, until it is closed."""
    connection, transport = server.connect()
    await feed_more(connection, transport, *chunks)
    return connection, transport


async def feed_more(connection: Connection, transport: Transport, *chunks: bytes) -> None:
    for chunk in chunks:
        if not transport.closed:
            connection.data_received(chunk)
            await settle()


@pytest.fixture
def server() -> Server:
    return Server()


def chunks(count: int, size: int) -> bytes:
    return b"%x\r\n%b\r\n" % (size, b"a" * size) * count


@pytest.mark.slow
async def test_a_body_in_small_chunks_costs_no_more_for_each_byte_if_it_is_large() -> None:
    async def seconds(count: int) -> float:
        server = Server(limits=replace(LIMITS, max_message_bytes=50_000_000))
        connection, transport = server.connect()
        began = thread_time()
        connection.data_received(CHUNKED + chunks(count, 125))
        spent = thread_time() - began
        await feed_more(connection, transport, b"0\r\n\r\n")
        assert [len(body) for _, body in server.served] == [125 * count]
        return spent

    small = min([await seconds(20_000) for _ in range(3)])
    assert await seconds(16 * 20_000) < 5 * 16 * small


def test_requests_of_a_client_that_reset_its_connection_before_it_was_accepted_are_not_served(server: Server) -> None:
    """A replica that was frozen finds such connections, and a proxy has sent their requests to another replica."""

    async def serve() -> bytes:
        listener = socket.create_server(("127.0.0.1", 0))
        with socket.create_connection(listener.getsockname()) as gone:
            gone.sendall(HELLO)
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(HELLO)
        loop: Any = asyncio.get_running_loop()
        async with await loop.create_server(
            lambda: Connection(server.rules, server.app, server.state, {}), sock=listener
        ):
            status = await reader.readline()
            writer.close()
        return status

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(serve()).startswith(b"HTTP/1.1 200")
    assert len(server.begun) == 1


async def test_requests_pass_one_after_the_other_however_they_are_cut(server: Server) -> None:
    connection, transport = await feed(server, HELLO)
    await feed_more(connection, transport, *(bytes([byte]) for byte in HELLO + CHUNKED + b"5\r\nhello\r\n0\r\n\r\n"))
    assert transport.statuses == [200, 200, 200]
    assert [body for _, body in server.served] == [b"hello"] * 3
    assert not transport.is_closing()


async def test_a_request_is_heard_of_as_soon_as_its_head_is_complete(server: Server) -> None:
    head, _, _ = HELLO.partition(b"\r\n\r\n")
    connection, transport = server.connect()
    connection.data_received(head)
    assert (len(server.heads), len(server.late)) == (0, 0)
    connection.data_received(b"\r\n\r\n")
    assert (len(server.heads), len(server.begun)) == (1, 0)
    assert server.late == server.heads  # its body is not there yet
    await feed_more(connection, transport, b"hello")
    assert len(server.late) == 1
    assert server.begun == server.heads


async def test_a_request_that_comes_in_one_piece_is_never_late_and_one_in_line_is_heard_of_in_its_turn(
    server: Server,
) -> None:
    server.hold = asyncio.Event()
    await feed(server, HELLO + HELLO)
    assert len(server.heads) == 1
    await server.let_go()
    assert len(server.heads) == 2
    assert server.late == []


HOSTILE: dict[str, bytes] = {
    "a length and chunks": HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and a length": HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "one length twice": HEAD + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "a list of lengths": HEAD + b"Content-Length: 5, 5\r\n\r\nhello",
    "a signed length": HEAD + b"Content-Length: +5\r\n\r\nhello",
    "a negative length": HEAD + b"Content-Length: -5\r\n\r\nhello",
    "a length in hex": HEAD + b"Content-Length: 0x5\r\n\r\nhello",
    "a length beyond 64 bits": HEAD + b"Content-Length: 18446744073709551621\r\n\r\nhello",
    "an empty length": HEAD + b"Content-Length: \r\n\r\n",
    "chunks, then another coding": HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "another coding alone": HEAD + b"Transfer-Encoding: identity\r\n\r\nhello",
    "a coding like chunks": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunks twice": HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a tab that is none": HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "a blank before the colon": HEAD + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": b"POST /mcp HTTP/1.0\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a negative chunk": CHUNKED + b"-1\r\n\r\n",
    "a chunk with 0x": CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n",
    "a chunk beyond 64 bits": CHUNKED + b"10000000000000005\r\nhello",
    "a chunk with a blank": CHUNKED + b"5 \r\nhello\r\n0\r\n\r\n",
    "a chunk longer than it says": CHUNKED + b"4\r\nhello\r\n0\r\n\r\n",
    "chunks with bare LF": CHUNKED + b"5\nhello\n0\n\n",
    "a chunk extension with bare LF": CHUNKED + b"5;a=b\nhello\r\n0\r\n\r\n",
    "a folded header": HEAD + b"X-Header: one\r\n two\r\nContent-Length: 0\r\n\r\n",
    "a header folded with a tab": HEAD + b"X-Header: one\r\n\ttwo\r\nContent-Length: 0\r\n\r\n",
    "a folded coding": HEAD + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "a blank before the first header": b"POST /mcp HTTP/1.1\r\n Host: here\r\n\r\n",
    "NUL in a value": HEAD + b"X-Header: one\x00two\r\n\r\n",
    "NUL in a name": HEAD + b"X-Header\x00: one\r\n\r\n",
    "CR in a value": HEAD + b"X-Header: one\rtwo\r\n\r\n",
    "a control character in a value": HEAD + b"X-Header: one\x01two\r\n\r\n",
    "a blank in a name": HEAD + b"X Header: one\r\n\r\n",
    "no name": HEAD + b": one\r\n\r\n",
    "no colon": HEAD + b"X-Header\r\n\r\n",
    "bare LF throughout": b"POST /mcp HTTP/1.1\nHost: here\nContent-Length: 0\n\n",
    "bare LF in one place": HEAD + b"X-Header: one\nX-Other: two\r\n\r\n",
    "bare LF at the end": HEAD + b"X-Header: one\r\n\n",
    "bare CR": b"POST /mcp HTTP/1.1\rHost: here\r\r",
    "another protocol": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "HTTP/2 from the start": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "an unknown version": b"POST /mcp HTTP/1.2\r\nHost: here\r\n\r\n",
    "a proxy request": b"CONNECT here:80 HTTP/1.1\r\nHost: here:80\r\n\r\n",
    "a proxy request with a path": b"CONNECT /mcp HTTP/1.1\r\nHost: here\r\n\r\n",
    "a proxy request with a body": b"CONNECT /mcp HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\n\r\nhello",
    "a target of another host": b"POST http://elsewhere/mcp HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n",
    "a target of a user": b"POST http://here@elsewhere/mcp HTTP/1.1\r\nHost: elsewhere\r\nContent-Length: 0\r\n\r\n",
    "a target and no host": b"POST http://here/mcp HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
    "a target and two hosts": b"POST http://here/mcp HTTP/1.1\r\nHost: here\r\nHost: elsewhere\r\n\r\n",
    "a target of no path": b"POST mcp HTTP/1.1\r\nHost: here\r\n\r\n",
    "a fragment": b"POST /mcp#x HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n",
    "an empty fragment": b"POST /mcp# HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n",
    "a fragment after the host": b"POST http://here/mcp#x HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n",
    "two blanks after the method": b"POST  /mcp HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n",
    "two blanks before the version": b"POST /mcp  HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n",
    "two blanks after an empty line": b"\r\nPOST  /mcp HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n",
    "two blanks in HTTP/1.0": b"POST  /mcp HTTP/1.0\r\nHost: here\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("cut", [len, lambda _: 1], ids=["at once", "in bytes"])
@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
async def test_what_two_readers_could_read_differently_ends_the_connection(
    server: Server, data: bytes, cut: Callable[[bytes], int]
) -> None:
    size = cut(data)
    _, transport = await feed(server, *(data[at : at + size] for at in range(0, len(data), size)))
    assert transport.statuses == [400]
    assert transport.is_closing()
    assert transport.error
    assert server.served == []
    assert server.refused(RefusalReason.BAD_HTTP) == 1
    assert server.state.tasks == set(), "nothing is left waiting for more"


@pytest.mark.parametrize("cut", [1, 7, 1000])
@pytest.mark.parametrize(
    "line", [b"POST  /mcp HTTP/1.1", b"POST /mcp  HTTP/1.1", b"GET  /mcp HTTP/1.1", b"POST /mcp# HTTP/1.1"]
)
async def test_a_request_line_is_checked_behind_another_request_too(server: Server, line: bytes, cut: int) -> None:
    hidden = line + b"\r\nHost: here\r\nContent-Length: 0\r\n\r\n"
    data = HELLO + hidden
    _, transport = await feed(server, *(data[at : at + cut] for at in range(0, len(data), cut)))
    assert [body for _, body in server.served] in ([b"hello"], [])  # cut off if it was not answered yet
    assert transport.is_closing()
    assert server.refused(RefusalReason.BAD_HTTP) == 1


@pytest.mark.parametrize("cut", [1, 7, 1000])
async def test_bodies_may_hold_what_no_request_line_may(server: Server, cut: int) -> None:
    body = b"POST  /mcp HTTP/1.1\r\nGET  / HTTP/1.1"
    data = HEAD.replace(b"/mcp", b"/mcp?x=1") + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    _, transport = await feed(server, *(data[at : at + cut] for at in range(0, len(data), cut)))
    assert transport.statuses == [200]


@pytest.mark.parametrize("path", ["/%6dcp", "/%6Dcp", "/mc%70", "/%2fmcp", "/mcp%00", "/%C3%A4"])
async def test_an_encoded_path_stands_for_no_other_path(server: Server, path: str) -> None:
    await feed(server, HELLO.replace(b"/mcp", path.encode()))
    ((scope, _),) = server.served
    assert (scope["path"], scope["raw_path"]) == (path, path.encode())


@pytest.mark.parametrize("version", [b"HTTP/2.0", b"HTTP/0.9"])
async def test_other_versions_are_not_spoken(server: Server, version: bytes) -> None:
    _, transport = await feed(server, HELLO.replace(b"HTTP/1.1", version))
    assert (transport.statuses, transport.closed) == ([505], True)
    assert server.served == []


async def test_http_1_0_is_answered_and_closed(server: Server) -> None:
    _, transport = await feed(server, HELLO.replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert (transport.statuses, transport.closed) == ([200], True)
    assert [body for _, body in server.served] == [b"hello"]


@pytest.mark.parametrize("target", [b"http://here/mcp", b"HTTP://HERE/mcp", b"http://here/mcp?x=http://elsewhere/"])
async def test_a_target_may_name_the_host_again(server: Server, target: bytes) -> None:
    _, transport = await feed(server, HELLO.replace(b"/mcp", target))
    assert transport.statuses == [200]
    assert server.served[0][0]["path"] == "/mcp"


@pytest.mark.parametrize("cut", [1, 1000])
async def test_a_field_after_a_chunked_body_is_not_a_header(server: Server, cut: int) -> None:
    data = CHUNKED + b"5\r\nhello\r\n0\r\nAuthorization: Bearer x\r\nHost: elsewhere\r\n\r\n"
    _, transport = await feed(server, *(data[at : at + cut] for at in range(0, len(data), cut)))
    ((scope, body),) = server.served
    assert body == b"hello"
    assert scope["headers"] == [(b"host", b"here"), (b"transfer-encoding", b"chunked")]
    assert not transport.is_closing()


@pytest.mark.parametrize("cut", [1, 50, 1000])
@pytest.mark.parametrize("upgrade", [b"h2c", b"websocket"])
async def test_a_request_that_asks_for_an_upgrade_is_answered_without_it_and_its_body_is_not_a_request(
    server: Server, upgrade: bytes, cut: int
) -> None:
    smuggled = b"POST /smuggled HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n"
    head = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: %b\r\nX-Header: kept\r\n" % upgrade
    data = HEAD + head + b"Content-Length: %d\r\n\r\n" % len(smuggled) + smuggled
    connection, transport = await feed(server, *(data[at : at + cut] for at in range(0, len(data), cut)))
    ((scope, body),) = server.served
    assert (scope["path"], body) == ("/mcp", smuggled)
    assert (b"x-header", b"kept") in scope["headers"]
    await feed_more(connection, transport, HELLO)
    assert transport.statuses == [200, 200]


def padded_head(size: int, fields: int = 3) -> bytes:
    """Return a request without a body whose head has so many bytes and so many headers."""
    filler = b"".join(b"X-%d: .\r\n" % number for number in range(fields - 3))
    head = HEAD + filler + b"Content-Length: 0\r\nX-Padding: %b\r\n\r\n"
    return head % (b"x" * (size - len(head) + len("%b")))


@pytest.mark.parametrize("cut", [7, 700, 10_000])
async def test_a_head_may_be_as_large_as_the_limit_and_not_a_byte_larger(server: Server, cut: int) -> None:
    for size, status in ((LIMITS.max_header_bytes, 200), (LIMITS.max_header_bytes + 1, 431)):
        data = padded_head(size)
        assert len(data) == size
        _, transport = await feed(server, *(data[at : at + cut] for at in range(0, size, cut)))
        assert transport.statuses == [status]
    assert transport.is_closing()
    assert transport.error == "The head of the request is larger than 2000 bytes"
    assert len(server.served) == 1
    assert server.refused(RefusalReason.HEADERS_TOO_LARGE) == 1


@pytest.mark.parametrize("start", [HEAD + b"X-Padding: ", HEAD + b"X-", b"POST /mcp?", b"\r\n", b"P"])
async def test_a_head_without_end_is_refused_at_the_limit(server: Server, start: bytes) -> None:
    endless = b"\r\n" if start == b"\r\n" else b"xx"
    _, transport = await feed(server, start, *([endless * 100] * 20))
    assert transport.statuses in ([431], [400])
    assert transport.is_closing()
    assert server.begun == []


async def test_a_large_head_behind_another_request_is_refused_too(server: Server) -> None:
    _, transport = await feed(server, HELLO + padded_head(LIMITS.max_header_bytes + 1))
    assert transport.is_closing()
    assert len(server.begun) <= 1


async def test_a_large_head_that_begins_behind_another_request_is_counted_from_its_start(server: Server) -> None:
    large = padded_head(100 * LIMITS.max_header_bytes)
    _, transport = await feed(server, HELLO + large[:-2], large[-2:])
    assert transport.statuses == [200, 431]
    assert len(server.begun) == 1


async def test_a_request_may_have_as_many_headers_as_the_limit_and_not_one_more(server: Server) -> None:
    for fields, status in ((LIMITS.max_headers, 200), (LIMITS.max_headers + 1, 431)):
        data = padded_head(600, fields)
        _, transport = await feed(server, data)
        assert transport.statuses == [status]
    assert transport.error == "The request has more than 20 headers"
    assert server.refused(RefusalReason.HEADERS_TOO_LARGE) == 1


async def test_a_body_larger_than_a_head_may_be_passes(server: Server) -> None:
    body = b"x" * 8000
    for cut in (1000, 20_000):
        data = HEAD + b"Content-Length: 8000\r\n\r\n" + body
        _, transport = await feed(server, *(data[at : at + cut] for at in range(0, len(data), cut)))
        assert transport.statuses == [200]
    assert [body for _, body in server.served] == [body] * 2


ENDLESS: dict[str, bytes] = {
    "a trailer": CHUNKED + b"0\r\nX-Trailer: ",
    "an extension": CHUNKED + b"5;",
    "trailers": CHUNKED + b"0\r\n",
    "the rest of a body": HEAD + b"Content-Length: 1000000\r\n\r\n",
}


@pytest.mark.parametrize("reads", [True, False], ids=["read", "unread"])
@pytest.mark.parametrize("start", ENDLESS.values(), ids=ENDLESS)
async def test_whatever_comes_without_end_is_cut_off(start: bytes, reads: bool) -> None:
    server = Server(reads=reads)
    _, transport = await feed(
        server, start, *([b"X-Trailer: x\r\n" * 50 if start.endswith(b"\n") else b"x" * 700] * 15)
    )
    assert transport.is_closing()
    assert transport.statuses == ([413] if reads else [200])
    assert server.refused(RefusalReason.BODY_TOO_LARGE) == 1


async def test_a_few_requests_may_wait_for_the_one_before_them(server: Server) -> None:
    server.hold = asyncio.Event()
    _, transport = await feed(server, HELLO * (MAX_PIPELINED + 1))
    assert len(server.begun) == 1
    await server.let_go()
    assert transport.statuses == [200] * (MAX_PIPELINED + 1)


async def test_of_a_crowd_of_requests_on_one_connection_those_that_were_accepted_are_answered(server: Server) -> None:
    server.hold = asyncio.Event()
    connection, transport = await feed(server, HELLO * (MAX_PIPELINED + 9))
    assert transport.written == b"", "this would be taken for the answer to the first"
    assert len(connection._pipeline) <= MAX_PIPELINED
    await feed_more(connection, transport, HELLO, b"more that nobody reads")
    await server.let_go()
    assert transport.statuses == [200] * (MAX_PIPELINED + 1) + [400]
    assert transport.closed
    assert len(server.served) == MAX_PIPELINED + 1
    assert server.refused(RefusalReason.BAD_HTTP) == 1


JUNK = {
    "no request": b"nonsense\r\n\r\n",
    "a bad line": b"GET /healthz  HTTP/1.1\r\nHost: x\r\n\r\n",
    "a bad version": b"GET / HTTP/1.9\r\nHost: x\r\n\r\n",
    "a proxy's request": b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "a large head": b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
    "a bad chunk": CHUNKED + b"zz\r\n",
}


@pytest.mark.parametrize("cut", [True, False], ids=["later", "at once"])
@pytest.mark.parametrize("before", [1, 3])
@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK)
async def test_what_was_accepted_before_junk_is_answered_and_then_the_junk_is_refused(
    server: Server, junk: bytes, before: int, cut: bool
) -> None:
    server.hold = asyncio.Event()
    connection, transport = await feed(server, *([HELLO * before, junk] if cut else [HELLO * before + junk]))
    assert (transport.closed, transport.written) == (False, b""), "a refusal does not get into an answer under way"
    await server.let_go()
    await settle()
    assert transport.statuses[:-1] == [200] * before
    assert transport.statuses[-1] >= 400
    assert transport.closed
    assert len(server.served) == before, "nothing of the junk runs"
    assert connection._refusal is not None


async def test_junk_behind_a_request_that_closes_its_connection_is_not_read(server: Server) -> None:
    closing = HELLO.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
    _, transport = await feed(server, closing + b"nonsense\r\n\r\n")
    assert transport.statuses == [200]
    assert transport.closed


async def test_a_connection_that_waits_to_refuse_something_is_let_go_with_its_client(server: Server) -> None:
    server.hold = asyncio.Event()
    connection, _ = await feed(server, HELLO * 2 + b"nonsense\r\n\r\n")
    connection.connection_lost(None)
    await server.let_go()
    assert len(server.begun) == 1


@dataclass
class InOnePiece(Server):
    """A server that reads and answers each request in one piece, if it can; `told` says whether it could."""

    headers: RawHeaders = field(default_factory=list)
    bodies: list[bytes | None] = field(default_factory=list)
    told: list[bool] = field(default_factory=list)

    async def app(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        shortcut = scope.pop(SHORTCUT)
        self.bodies.append(shortcut.body())
        if self.hold is not None:
            await self.hold.wait()
        headers = [(b"content-length", b"2"), *self.headers]
        self.told.append(shortcut.respond(200, headers, b"ok"))
        if not self.told[-1]:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"ok"})


@pytest.mark.parametrize("cut", [0, 1, len(HELLO) - 6, len(HELLO) - 5, len(HELLO) - 4, len(HELLO) - 1])
async def test_a_body_is_read_in_one_piece_if_all_of_it_is_there(cut: int) -> None:
    server = InOnePiece()
    connection, transport = await feed(server, HELLO[:cut], HELLO[cut:])
    await feed_more(connection, transport, HELLO)
    assert server.bodies == [None if len(HELLO) - 5 <= cut else b"hello", b"hello"]
    assert transport.written.count(b"HTTP/1.1 200 OK") == 2
    assert not transport.closed


async def test_answers_in_one_piece_are_those_of_their_requests_and_close_as_asked() -> None:
    server = InOnePiece()
    _, transport = await feed(server, HELLO + CHUNKED + b"0\r\n\r\n" + HEAD + b"Connection: close\r\n\r\n" + HELLO)
    assert server.told == [True] * 3
    assert transport.written.count(b"\r\n\r\nok") == 3
    assert transport.written.count(b"\r\nconnection: close\r\n") == 1
    assert transport.closed


async def test_an_answer_without_a_body_or_to_a_slow_or_lost_reader_is_not_sent_in_one_piece() -> None:
    server = InOnePiece(hold=asyncio.Event())
    head = await feed(server, HELLO.replace(b"POST", b"HEAD"))
    slow = await feed(server, HELLO)
    slow[0].pause_writing()
    lost = await feed(server, HELLO)
    lost[0].connection_lost(None)
    await server.let_go()
    assert server.told == [False] * 3
    assert head[1].statuses == [200]
    assert not head[1].written.endswith(b"ok")
    assert (slow[1].written, lost[1].written) == (b"", b"")
    slow[0].resume_writing()
    await settle()
    assert slow[1].written.endswith(b"\r\n\r\nok")


async def test_an_answer_that_would_be_two_is_not_sent() -> None:
    server = InOnePiece(headers=[(b"x-told", b"one\r\nx-untold: two")])
    _, transport = await feed(server, HELLO)
    assert (server.told, transport.statuses, transport.closed) == ([False], [500], True)
    assert b"untold" not in transport.written


async def test_a_long_header_of_an_answer_is_told_and_takes_no_memory_afterwards() -> None:
    header_line.cache_clear()
    server = InOnePiece(headers=[(b"x-long", b"x" * (MAX_REMEMBERED_BYTES + 1))])
    _, transport = await feed(server, HELLO)
    assert server.told == [False]
    assert b"\r\nx-long: " + b"x" * (MAX_REMEMBERED_BYTES + 1) + b"\r\n" in transport.written
    remembered = header_line.cache_info().currsize
    server.headers = [(b"x-short", b"x" * MAX_REMEMBERED_BYTES)]
    await feed(server, HELLO)
    assert server.told == [False, True]
    assert header_line.cache_info().currsize - remembered == 1


@dataclass
class Telling(Server):
    """A server that gives the same answer to every request, with ASGI events."""

    status: int = 200
    headers: list[Any] = field(default_factory=list)
    parts: list[Any] = field(default_factory=lambda: [b"hello"])

    async def app(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        for part in self.parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body"})


async def test_an_answer_without_a_length_comes_in_chunks_and_to_an_old_client_until_the_connection_ends() -> None:
    _, transport = await feed(Telling(parts=[b"hel", b"", b"lo"]), HELLO)
    head, _, body = transport.written.partition(b"\r\n\r\n")
    assert b"\r\ntransfer-encoding: chunked" in head
    assert (body, transport.closed) == (b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", False)
    _, transport = await feed(Telling(parts=[b"hel", b"", b"lo"]), HELLO.replace(b"HTTP/1.1", b"HTTP/1.0"))
    head, _, body = transport.written.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert (body, transport.closed) == (b"hello", True)


async def test_the_framing_of_an_answer_is_sent_once_whatever_the_application_says() -> None:
    for headers in ([(b"Content-Length", b"5")], [[b"content-length", b"5"], [b"Transfer-Encoding", b"chunked"]]):
        _, transport = await feed(Telling(headers=headers), HELLO)
        head, _, body = transport.written.partition(b"\r\n\r\n")
        assert head.lower().count(b"content-length") == 1
        assert (b"transfer-encoding" in head, body, transport.closed) == (False, b"hello", False)


@pytest.mark.parametrize("option", [b"close", b"Close", b"keep-alive, close"])
async def test_an_answer_may_end_its_connection(option: bytes) -> None:
    _, transport = await feed(Telling(headers=[(b"Connection", option)]), HELLO + HELLO)
    assert transport.written.count(b"HTTP/1.1 200 OK") == 1
    assert transport.written.count(b"\r\nconnection: close\r\n") == 1
    assert transport.closed


@pytest.mark.parametrize("part", [bytearray(b"hello"), memoryview(b"hello")])
async def test_a_body_may_be_any_bytes_and_a_status_any_number(part: Any) -> None:
    _, transport = await feed(Telling(status=299, headers=[[b"content-length", b"5"]], parts=[part]), HELLO)
    assert transport.written.startswith(b"HTTP/1.1 299 ")
    assert transport.written.endswith(b"\r\n\r\nhello")


async def test_an_answer_of_another_length_than_announced_ends_its_connection() -> None:
    for length in (b"4", b"6"):
        _, transport = await feed(Telling(headers=[(b"content-length", length)]), HELLO + HELLO)
        assert transport.written.count(b"HTTP/1.1 200 OK") == 1
        assert transport.closed


async def test_a_client_is_asked_for_a_body_that_it_holds_back_unless_it_is_an_old_one(server: Server) -> None:
    head = HEAD + b"Expect: 100-Continue\r\nContent-Length: 5\r\n\r\n"
    connection, transport = await feed(server, head)
    assert transport.written == b"HTTP/1.1 100 Continue\r\n\r\n"
    await feed_more(connection, transport, b"hello")
    assert transport.statuses == [100, 200]
    _, transport = await feed(server, head.replace(b"HTTP/1.1", b"HTTP/1.0"), b"hello")
    assert transport.statuses == [200]


async def test_a_target_that_is_a_host_alone_means_its_root(server: Server) -> None:
    for target in (b"http://here", b"http://here?x=1"):
        _, transport = await feed(server, HELLO.replace(b"/mcp", target))
        assert transport.statuses == [200]
    assert [scope["path"] for scope, _ in server.served] == ["/", "/"]


async def test_a_body_that_nobody_reads_is_not_kept(server: Server) -> None:
    server.reads = False
    connection, transport = await feed(server, HEAD + b"Content-Length: 1000\r\n\r\n" + b"x" * 1000)
    assert transport.statuses == [200]
    assert connection.cycle is not None
    assert connection.cycle._body == b""


@dataclass
class Watching(Server):
    """A server that answers nothing and watches for the client to disconnect."""

    async def app(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        self.begun.append(scope)
        if self.hold is not None:
            await self.hold.wait()
        while (await receive())["type"] != "http.disconnect":
            pass
        self.gone += 1


@pytest.mark.parametrize("behind", [b"", HELLO, HELLO * 3, HELLO[:-1]])
async def test_a_request_hears_that_its_client_is_gone_though_others_wait_behind_it(behind: bytes) -> None:
    server = Watching()
    connection, _ = await feed(server, HELLO + behind)
    connection.connection_lost(None)
    await settle()
    assert (len(server.begun), server.gone) == (1, 1)


@pytest.mark.parametrize(("size", "paused"), [(1000, False), (MAX_UNREAD_BYTES, False), (MAX_UNREAD_BYTES + 1, True)])
@pytest.mark.parametrize("requests", [1, 3])
async def test_reading_waits_for_the_turn_of_a_request_of_which_much_has_arrived(
    requests: int, size: int, paused: bool
) -> None:
    server = Watching(replace(LIMITS, max_message_bytes=2**21), hold=asyncio.Event())
    piece = b"x" * (size // requests)
    whole = HEAD + b"Content-Length: %d\r\n\r\n" % len(piece) + piece
    rest = size - len(piece) * (requests - 1)
    last = HEAD + b"Content-Length: 1000000\r\n\r\n" + b"x" * rest
    connection, transport = await feed(server, HELLO, *[whole] * (requests - 1), last)
    assert server.hold is not None
    server.hold.set()
    await settle()
    assert transport.paused is paused
    connection.connection_lost(None)
    await settle()
    assert (len(server.begun), server.gone) == (1, 1)


async def test_a_request_in_work_does_not_hear_of_nonsense_that_follows_it() -> None:
    server = Watching()
    connection, transport = await feed(server, HELLO + HELLO, b"\x00nonsense\r\n\r\n")
    assert (transport.closed, len(server.begun), server.gone) == (False, 1, 0)
    connection.connection_lost(None)
    await settle()
    assert (len(server.begun), server.gone) == (1, 1)


def new_cycles() -> int:
    """Return how many objects of this class were made since the garbage collector last ran, and are still there."""
    return sum(isinstance(thing, Cycle) for thing in gc.get_objects(generation=0))


async def test_a_request_beside_the_endpoint_leaves_nothing_behind_either(server: Server) -> None:
    gc.collect(0)
    gc.disable()
    try:
        connection, _ = await feed(server, HELLO, HELLO, HELLO)
        assert len(server.served) == 3
        server.begun.clear()
        server.heads.clear()
        server.served.clear()
        assert new_cycles() == 1
        connection.connection_lost(None)
    finally:
        gc.enable()


async def test_what_a_request_leaves_behind_is_freed_without_the_garbage_collector() -> None:
    app = make_app()
    rules = make_server(app._services, app)._rules
    connection, transport = Connection(rules, app, ServerState(), {}), Transport()
    connection.connection_made(transport)
    message = tool_call("echo", {"text": "hello"})
    body = msgspec.json.encode(message)
    head = [b"POST /mcp HTTP/1.1", *(f"{name}: {value}".encode() for name, value in head_of(message))]
    gc.collect(0)
    gc.disable()
    try:
        request = b"\r\n".join([*head, b"Content-Length: %d\r\n\r\n" % len(body)]) + body
        await feed_more(connection, transport, request)
        await feed_more(connection, transport, request)
        assert transport.written.count(b"HTTP/1.1 200 OK") == 2
        assert new_cycles() == 1
    finally:
        gc.enable()


async def test_connections_up_to_the_limit_are_served_and_more_are_closed_at_once(server: Server) -> None:
    held = [server.connect() for _ in range(LIMITS.max_connections)]
    rejected, closed = server.connect()
    assert (closed.closed, closed.written) == (True, b"")
    rejected.connection_lost(None)
    assert server.telemetry.registry.get_sample_value("gateway_connections_refused_total") == 1
    for connection, transport in held:
        await feed_more(connection, transport, HELLO)
        assert transport.statuses == [200]
    held[0][0].connection_lost(None)
    _, transport = await feed(server, HELLO)
    assert transport.statuses == [200]


async def test_exempt_connections_leave_their_places_to_others_up_to_a_limit() -> None:
    server = Server(replace(LIMITS, max_exempt_connections=1))
    held = [server.connect() for _ in range(LIMITS.max_connections)]
    for connection, _ in held:
        connection.data_received(HELLO)
        assert connection.cycle is not None
        connection.cycle.exempt()
        connection.cycle.exempt()
    assert [server.connect()[1].closed for _ in range(2)] == [False, True]
    for connection, _ in held[:2]:
        connection.connection_lost(None)
    assert [server.connect()[1].closed for _ in range(2)] == [False, True]


def wait(connection: Connection, seconds: float) -> None:
    """Let so many seconds pass."""
    for _ in range(int(seconds)):
        if not connection.transport.is_closing():
            connection.check_progress(1.0)


SLOW_HEADS: dict[str, Iterable[bytes]] = {
    "nothing": [],
    "a byte": [b"P"],
    "half a head": [HEAD],
    "empty lines": [b"\r\n"],
}


QUARTER_OF_A_HEAD = HEAD + b"A: " + b"a" * (MAX_UNFINISHED_HEAD_BYTES // 4)
LARGE_HEADS = replace(LIMITS, max_connections=100, max_header_bytes=MAX_UNFINISHED_HEAD_BYTES)


async def test_a_body_in_too_many_small_chunks_is_refused_and_other_bodies_are_not() -> None:
    server = Server(limits=replace(LIMITS, max_message_bytes=2**21))
    _, refused = await feed(server, CHUNKED, chunks(MAX_SMALL_PARTS * 2, 1))
    assert refused.error == "The body arrives in too many small chunks; send larger ones"
    _, refused = await feed(server, CHUNKED, b"0\r\n" + b"a:\r\n" * MAX_SMALL_PARTS * 2)
    assert refused.statuses == [400]
    _, served = await feed(server, CHUNKED, chunks(MAX_SMALL_PARTS, 1) + b"0\r\n\r\n", CHUNKED, chunks(9000, 128))
    await feed_more(_, served, b"0\r\n\r\n")
    assert served.statuses == [200, 200]


async def test_when_unfinished_heads_take_too_much_memory_the_oldest_is_refused() -> None:
    server = Server(limits=LARGE_HEADS)
    done, answered = await feed(server, QUARTER_OF_A_HEAD, b"\r\nContent-Length: 0\r\n\r\n")
    _, gone = await feed(server, QUARTER_OF_A_HEAD)
    _, oldest = await feed(server, QUARTER_OF_A_HEAD)
    (await feed(server, QUARTER_OF_A_HEAD))[0].connection_lost(None)
    others = [(await feed(server, QUARTER_OF_A_HEAD))[1] for _ in range(2)]
    assert answered.statuses == [200]
    assert gone.statuses == [503]
    assert not oldest.closed
    last, transport = await feed(server, QUARTER_OF_A_HEAD)
    assert oldest.statuses == [503]
    assert not any(each.closed for each in (*others, transport, answered))
    assert server.refused(RefusalReason.SLOW_HEAD) == 2
    await feed_more(last, transport, b"\r\nContent-Length: 0\r\n\r\n")
    assert transport.statuses == [200]
    await feed_more(done, answered, HELLO)
    assert answered.statuses == [200, 200]


async def test_many_small_headers_of_an_unfinished_head_count_as_what_they_take() -> None:
    server = Server(limits=replace(LARGE_HEADS, max_headers=10**6))
    headers = HEAD + b"a:\r\n" * (MAX_UNFINISHED_HEAD_BYTES // 400)
    transports = [(await feed(server, headers))[1] for _ in range(2)]
    assert [transport.statuses for transport in transports] == [[503], []]


async def test_a_head_with_too_many_headers_and_bytes_is_refused_once(server: Server) -> None:
    _, transport = await feed(server, HEAD + b"a:\r\n" * 1000)
    assert transport.statuses == [431]
    assert server.refused(RefusalReason.HEADERS_TOO_LARGE) == 1


async def test_too_many_headers_are_refused_before_the_head_is_complete(server: Server) -> None:
    _, transport = await feed(server, HEAD + b"a:\r\n" * 21)
    assert transport.error == "The request has more than 20 headers"


async def test_an_allowed_page_reads_that_its_body_was_late_and_that_its_head_is_too_large(server: Server) -> None:
    head = HEAD + b"Origin: https://app.example.com\r\n"
    connection, late = await feed(server, head + b"Content-Length: 5\r\n\r\n", b"{")
    wait(connection, 60)
    _, large = await feed(server, head + b"a:\r\n" * 21)
    assert (late.statuses, large.statuses) == ([408], [431])
    for transport in (late, large):
        assert b"\r\naccess-control-allow-origin: https://app.example.com" in transport.written


@pytest.mark.parametrize("sent", SLOW_HEADS.values(), ids=SLOW_HEADS)
async def test_a_head_has_its_time_and_no_more(server: Server, sent: Iterable[bytes]) -> None:
    connection, transport = await feed(server, *sent)
    wait(connection, 10)
    assert not transport.is_closing()
    wait(connection, 1)
    assert transport.is_closing()
    assert transport.statuses == ([408] if sent else []), "who has sent nothing is told nothing"
    assert server.refused(RefusalReason.SLOW_HEAD) == 1
    assert server.refused(RefusalReason.SLOW_BODY) == 0


async def test_a_byte_each_second_buys_a_head_no_time(server: Server) -> None:
    connection, transport = server.connect()
    for byte in HELLO[:11]:
        connection.data_received(bytes([byte]))
        assert not transport.is_closing()
        wait(connection, 1)
    assert transport.error == "The head took too long to arrive"


@pytest.mark.parametrize("start", [HEAD + b"Content-Length: 1000\r\n\r\n", CHUNKED], ids=["length", "chunks"])
async def test_a_byte_each_second_buys_a_body_no_time(server: Server, start: bytes) -> None:
    connection, transport = await feed(server, start)
    for _ in range(21):
        assert not transport.is_closing()
        connection.data_received(b"x" if b"Length" in start else b"1\r\nx\r\n")
        await settle()
        wait(connection, 1)
    assert transport.error == "The body took too long to arrive"
    await settle()
    assert (server.served, server.gone) == ([], 1), "the application is told that the client is gone"
    assert server.refused(RefusalReason.SLOW_BODY) == 1


async def test_a_head_and_a_body_in_time_pass(server: Server) -> None:
    connection, transport = await feed(server, HEAD)
    wait(connection, 9)
    await feed_more(connection, transport, b"Content-Length: 5\r\n\r\nhel")
    wait(connection, 19)
    await feed_more(connection, transport, b"lo")
    assert transport.statuses == [200]


async def test_a_request_that_is_being_answered_takes_as_long_as_it_takes(server: Server) -> None:
    server.hold = asyncio.Event()
    connection, transport = await feed(server, HELLO)
    wait(connection, 1000)
    assert not transport.is_closing()
    await server.let_go()
    assert (transport.statuses, transport.closed) == ([200], False)


async def test_a_client_that_reads_nothing_of_an_answer_is_cut_off(server: Server) -> None:
    server.hold = asyncio.Event()
    connection, transport = await feed(server, HELLO)
    transport.unread = 70_000
    connection.pause_writing()
    wait(connection, 29)
    cut_early = transport.closed
    wait(connection, 3)
    assert (cut_early, transport.closed) == (False, True)
    assert server.refused(RefusalReason.SLOW_READER) == 1
    connection.connection_lost(None)
    await server.let_go()


async def test_when_too_much_waits_for_slow_readers_the_longest_waits_are_cut_off() -> None:
    server, connections = Server(replace(LIMITS, max_connections=5)), []
    for unread in (90_000, 80_000, 20_000):
        connection, transport = server.connect()
        transport.unread = unread
        connection.pause_writing()
        connections.append((connection, transport))
    assert [transport.closed for _, transport in connections] == [False, False, False]
    (_, first), (second_connection, second), (_, third) = connections
    second_connection.resume_writing()
    fourth_connection, fourth = server.connect()
    fourth.unread = 90_000
    fourth_connection.pause_writing()
    assert [transport.closed for transport in (first, second, third, fourth)] == [False, False, False, False]
    fifth_connection, fifth = server.connect()
    fifth.unread = 70_000
    fifth_connection.pause_writing()
    assert [transport.closed for transport in (first, third, fourth, fifth)] == [True, False, False, False]
    assert server.refused(RefusalReason.SLOW_READER) == 1


async def test_an_answer_larger_than_all_that_may_wait_can_still_be_read(server: Server) -> None:
    connection, transport = server.connect()
    transport.unread = 1_000_000
    connection.pause_writing()
    assert not transport.closed


async def test_a_request_that_is_refused_for_load_is_answered_in_one_piece() -> None:
    app = make_app()
    connection, transport = Connection(make_server(app._services, app)._rules, app, ServerState(), {}), Transport()
    connection.connection_made(transport)
    while app._services.load.arrive() is not None:
        pass
    message = tool_call("echo", {"text": "hello"})
    body = msgspec.json.encode(message)
    fields = [f"{name}: {value}".encode() for name, value in head_of(message)]
    head = b"\r\n".join([b"POST /mcp HTTP/1.1", *fields, b"Content-Length: %d\r\n\r\n" % len(body)])
    await feed_more(connection, transport, head + body)
    told, _, answer = transport.written.partition(b"\r\n\r\n")
    assert (transport.statuses, transport.closed) == ([503], False)
    assert b"\r\nretry-after: " in told
    assert b"\r\ncontent-length: %d" % len(answer) in told
    assert json.loads(answer)["error"]["code"] == -31001


async def test_requests_in_line_are_let_go_with_their_connection(server: Server) -> None:
    server.hold = asyncio.Event()
    connection, _ = await feed(server, HELLO * 3)
    connection.connection_lost(None)
    assert len(connection._pipeline) == 0
    await server.let_go()
    assert len(server.begun) == 1


@dataclass
class Closing(Transport):
    """A transport that closes only when the client has read what is written, as real ones do."""

    aborted: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    def abort(self) -> None:
        self.aborted = True

    def write(self, data: Any) -> None:
        self.written += bytes(data)
        self.unread += len(data)


async def test_a_client_that_is_refused_and_reads_nothing_is_refused_once_and_cut_off(server: Server) -> None:
    connection, transport = server.connect()
    connection.transport = closing = Closing()
    connection.data_received(HEAD)
    for _ in range(11 + 29):
        connection.check_progress(1.0)
    assert (closing.statuses, closing.closed, closing.aborted) == ([408], True, False)
    for _ in range(3):
        connection.check_progress(1.0)
    assert (closing.statuses, closing.aborted) == ([408], True)
    assert server.refused(RefusalReason.SLOW_HEAD) == 1
    assert not transport.closed


async def test_the_server_waits_for_a_slow_reader(server: Server) -> None:
    server.hold = asyncio.Event()
    connection, transport = await feed(server, HELLO)
    transport.unread = 70_000
    connection.pause_writing()
    for _ in range(100):
        transport.unread -= 10
        wait(connection, 20)
    connection.resume_writing()
    wait(connection, 100)
    assert not transport.closed
    assert server.refused(RefusalReason.SLOW_READER) == 0
    await server.let_go()
    assert transport.statuses == [200]


async def test_an_idle_connection_has_a_limit_of_its_own(server: Server) -> None:
    connection, transport = await feed(server, HELLO)
    wait(connection, LIMITS.idle_seconds)
    assert not transport.is_closing()
    await feed_more(connection, transport, HELLO[:20])
    wait(connection, 10)
    assert not transport.is_closing()
    wait(connection, 1)
    assert transport.statuses == [200, 408]


async def test_an_idle_connection_is_closed_without_a_word(server: Server) -> None:
    connection, transport = await feed(server, HELLO)
    wait(connection, LIMITS.idle_seconds)
    await feed_more(connection, transport, HELLO)
    wait(connection, LIMITS.idle_seconds)
    assert not transport.is_closing()
    wait(connection, 1)
    assert transport.is_closing()
    assert transport.statuses == [200, 200]


async def test_a_head_that_began_before_the_last_answer_has_its_time_too(server: Server) -> None:
    server.hold = asyncio.Event()
    connection, transport = await feed(server, HELLO, HEAD)
    wait(connection, 1000)
    await server.let_go()
    wait(connection, 10)
    assert not transport.is_closing()
    wait(connection, 1)
    assert transport.statuses == [200, 408]


async def test_a_body_that_nobody_reads_has_its_time_too(server: Server) -> None:
    server.reads = False
    connection, transport = await feed(server, HEAD + b"Content-Length: 100\r\n\r\n")
    assert transport.statuses == [200]
    for _ in range(21):
        connection.data_received(b"x")
        wait(connection, 1)
    assert transport.is_closing()
    assert transport.statuses == [200], "the request has been answered already"


async def test_after_a_body_that_nobody_read_the_connection_is_idle(server: Server) -> None:
    server.reads = False
    connection, transport = await feed(server, HEAD + b"Content-Length: 5\r\n\r\n", b"hello")
    wait(connection, LIMITS.idle_seconds)
    assert not transport.is_closing()
    await feed_more(connection, transport, HELLO)
    assert transport.statuses == [200, 200]


async def test_time_in_which_nothing_is_read_is_not_the_clients() -> None:
    server = Server(replace(LIMITS, max_message_bytes=1_000_000), reads=False, hold=asyncio.Event())
    connection, transport = await feed(server, HEAD + b"Content-Length: 100000\r\n\r\n" + b"x" * 70_000)
    assert transport.paused
    wait(connection, 1000)
    assert not transport.is_closing()
    await server.let_go()
    assert (transport.statuses, transport.paused) == ([200], False)
    wait(connection, 21)
    assert transport.is_closing()


class Loop:
    """An event loop's clock and its one timer."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.due = 0.0
        self.callback: Callable[[], None] | None = None

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None]) -> Loop:
        self.due, self.callback = self.now + delay, callback
        return self

    def cancel(self) -> None:
        self.callback = None

    def sleep_until(self, now: float) -> None:
        """Run the timer as a loop does that wakes up at `now`."""
        assert self.callback is not None
        assert now >= self.due
        self.now = now
        self.callback()


def test_all_connections_are_looked_at_each_second_until_it_stops() -> None:
    seen: list[float] = []

    class Counted:
        def check_progress(self, elapsed_seconds: float) -> None:
            seen.append(elapsed_seconds)
            connections.discard(self)

    connections: set[object] = {Counted(), Counted()}
    loop = Loop()
    sweeper = Sweeper(connections, loop)  # type: ignore[arg-type]  # all of a loop that it uses
    loop.sleep_until(1000.0 + SWEEP_SECONDS)
    assert seen == [SWEEP_SECONDS] * 2
    connections.add(Counted())
    loop.sleep_until(5000.0)
    assert seen[2:] == [LONGEST_STEP_SECONDS], "when the loop stands still, no client is to blame"
    assert loop.due == 5000.0 + SWEEP_SECONDS
    sweeper.stop()
    assert loop.callback is None


async def test_no_request_has_a_header_of_the_one_before_it_or_of_its_own_trailers(server: Server) -> None:
    connection, _ = server.connect()
    first = b"POST /mcp HTTP/1.1\r\nHost: here\r\nMcp-Method: tools/call\r\nContent-Length: 0\r\n\r\n"
    second = CHUNKED + b"0\r\nAuthorization: Bearer x\r\n\r\n"
    third = HEAD + b"Accept: a\r\nAccept: b\r\nContent-Length: 0\r\n\r\n"
    connection.data_received(first + second + third)
    while len(server.heads) < 3:  # noqa: ASYNC110
        await asyncio.sleep(0)
    names = [set(values) for values in server.last_values]
    assert names == [
        {b"host", b"mcp-method", b"content-length"},
        {b"host", b"transfer-encoding"},
        {b"host", b"accept", b"content-length"},
    ]
    assert server.last_values == [dict(scope["headers"]) for scope in server.heads]
