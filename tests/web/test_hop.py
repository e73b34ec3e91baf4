"""A client's request reaches the replica that waits for it, or the sender knows soon that it does not."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from gateway.web import hop
from gateway.web.hop import GONE, post_on
from gateway.web.listener import listen
from tests.certificates import make_certificate

SECONDS = 20.0
SHORT = 0.3
HEADERS = [(b"content-type", b"application/json"), (b"authorization", b"Bearer token")]
BODY = b'{"jsonrpc":"2.0","id":"s1.x","result":{}}'
ACCEPTED = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Replica:
    """A server that reads one request a connection and answers it as it is told.

    Attributes:
        seen: the head and the body of each request.
        gone: set once a client has hung up.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.seen: list[tuple[list[bytes], bytes]] = []
        self.arrived = asyncio.Event()
        self.gone = asyncio.Event()
        self.authority = ""

    @property
    def url(self) -> str:
        return f"http://{self.authority}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
            (length,) = (int(line.partition(b": ")[2]) for line in head if line.startswith(b"content-length: "))
            self.seen.append((head, await reader.readexactly(length)))
            self.arrived.set()
            await self._answer(writer)
            await reader.read()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.gone.set()
            writer.transport.abort()


@asynccontextmanager
async def replica(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[Replica]:
    served = Replica(answer)
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0, ssl=tls)
    served.authority = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield served
    finally:
        server.close()
        await server.wait_closed()


def sends(*parts: bytes) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()

    return answer


def hangs_up_after(data: bytes) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        writer.close()

    return answer


async def says_nothing(writer: asyncio.StreamWriter) -> None:
    """Leave the client waiting."""


async def drips(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 202 Accepted\r\nx: ")
    while True:
        writer.write(b"y")
        await writer.drain()
        await asyncio.sleep(0.01)


async def never_ends_its_body(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 202 Accepted\r\n\r\n")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def never_ends_its_head(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 202 Accepted\r\n")
    while True:
        writer.write(b"x: " + b"y" * 1000 + b"\r\n")
        await writer.drain()


async def test_the_request_arrives_as_it_was_and_its_status_is_returned() -> None:
    async with replica(sends(ACCEPTED)) as other:
        assert await post_on(other.url, HEADERS, BODY, seconds=SECONDS) == 202
    ((head, body),) = other.seen
    assert body == BODY
    assert head == [
        b"POST /mcp HTTP/1.1",
        f"host: {other.authority}".encode(),
        b"x-gateway-hop: 1",
        b"content-length: %d" % len(BODY),
        b"connection: close",
        b"content-type: application/json",
        b"authorization: Bearer token",
        b"",
        b"",
    ]


async def test_of_the_clients_headers_only_those_go_along_that_say_who_and_how() -> None:
    along = [
        (b"accept", b"application/json, text/event-stream"),
        (b"authorization", b"Bearer token"),
        (b"content-type", b"application/json"),
        (b"mcp-protocol-version", b"2025-11-25"),
        (b"mcp-session-id", b"s1.session"),
    ]
    left = [
        (b"host", b"public.example"),
        (b"x-gateway-hop", b"0"),
        (b"content-length", b"1"),
        (b"transfer-encoding", b"chunked"),
        (b"expect", b"100-continue"),
        (b"connection", b"upgrade"),
        (b"upgrade", b"websocket"),
        (b"cookie", b"a=b"),
        (b"origin", b"https://public.example"),
        (b"x-forwarded-for", b"192.0.2.1"),
        (b"accept-encoding", b"gzip"),
    ]
    async with replica(sends(ACCEPTED)) as other:
        assert await post_on(other.url, along + left, BODY, seconds=SECONDS) == 202
    ((head, _body),) = other.seen
    assert head[5:-2] == [name + b": " + value for name, value in along]
    assert not any(b"public.example" in line for line in head)


@pytest.mark.parametrize("path", ["", "/", "/replica/7", "/replica/7/"])
async def test_the_replica_may_be_below_a_path(path: str) -> None:
    async with replica(sends(ACCEPTED)) as other:
        assert await post_on(other.url + path, HEADERS, BODY, seconds=SECONDS) == 202
    assert other.seen[0][0][0] == b"POST %b/mcp HTTP/1.1" % path.rstrip("/").encode()


@pytest.mark.parametrize("status", [200, 202, 400, 401, 404, 413, 429, 500, 503])
async def test_every_status_is_told(status: int) -> None:
    async with replica(sends(b"HTTP/1.1 %d Any\r\ncontent-length: 3\r\n\r\n{}\n" % status)) as other:
        assert await post_on(other.url, HEADERS, BODY, seconds=SECONDS) == status


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    async with replica(sends(ACCEPTED)) as elsewhere:
        redirect = b"HTTP/1.1 %d See\r\nlocation: %b/mcp\r\n\r\n" % (status, elsewhere.url.encode())
        async with replica(sends(redirect)) as other:
            assert await post_on(other.url, HEADERS, BODY, seconds=SECONDS) == status
        assert len(other.seen) == 1
        assert not elsewhere.seen


async def test_what_announces_an_answer_is_not_the_answer() -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
    async with replica(sends(*interim, ACCEPTED)) as other:
        assert await post_on(other.url, HEADERS, BODY, seconds=SECONDS) == 202


async def test_an_answer_in_pieces_is_put_together() -> None:
    async def answer(writer: asyncio.StreamWriter) -> None:
        for byte in ACCEPTED:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)

    async with replica(answer) as other:
        assert await post_on(other.url, HEADERS, BODY, seconds=SECONDS) == 202


async def test_a_body_without_end_is_not_read() -> None:
    async with replica(never_ends_its_body) as other:
        assert await post_on(other.url, HEADERS, BODY, seconds=SECONDS) == 202
        await asyncio.wait_for(other.gone.wait(), SECONDS)


async def test_the_first_answer_is_the_answer_whatever_follows_it() -> None:
    async with replica(sends(ACCEPTED + b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n")) as other:
        assert await post_on(other.url, HEADERS, BODY, seconds=SECONDS) == 202


async def test_a_head_over_64_kib_is_no_answer() -> None:
    async with replica(sends(b"HTTP/1.1 202 Accepted\r\nx: " + b"y" * 65536 + b"\r\n\r\n")) as other:
        assert await post_on(other.url, HEADERS, BODY, seconds=SECONDS) == GONE


async def test_a_head_without_end_is_no_answer() -> None:
    async with replica(never_ends_its_head) as other:
        assert await post_on(other.url, HEADERS, BODY, seconds=SECONDS) == GONE
        await asyncio.wait_for(other.gone.wait(), SECONDS)


@pytest.mark.parametrize("answer", [says_nothing, drips])
async def test_a_slow_replica_is_given_up_and_its_connection_ended(answer: Answer) -> None:
    async with replica(answer) as other:
        assert await post_on(other.url, HEADERS, BODY, seconds=SHORT) == GONE
        await asyncio.wait_for(other.gone.wait(), SECONDS)


async def test_a_sender_has_as_much_time_as_it_was_given() -> None:
    async with replica(says_nothing) as other:
        hasty = asyncio.create_task(post_on(other.url, HEADERS, BODY, seconds=SHORT))
        patient = asyncio.create_task(post_on(other.url, HEADERS, BODY, seconds=SECONDS))
        done, _ = await asyncio.wait({hasty, patient}, return_when=asyncio.FIRST_COMPLETED)
        assert done == {hasty}
        patient.cancel()
        await asyncio.wait({patient})


async def test_a_replica_that_takes_no_connection_is_given_up() -> None:
    with listen("127.0.0.1", 0) as nobody_accepts:
        port = nobody_accepts.getsockname()[1]
        assert await post_on(f"http://127.0.0.1:{port}", HEADERS, BODY, seconds=SHORT) == GONE


async def test_a_replica_that_reads_nothing_of_a_large_request_is_given_up() -> None:
    with listen("127.0.0.1", 0) as nobody_reads:
        port = nobody_reads.getsockname()[1]
        assert await post_on(f"http://127.0.0.1:{port}", HEADERS, bytes(1 << 25), seconds=SHORT) == GONE


async def test_a_large_request_arrives_whole() -> None:
    body = bytes(1 << 22)
    async with replica(sends(ACCEPTED)) as other:
        assert await post_on(other.url, HEADERS, body, seconds=SECONDS) == 202
    assert other.seen[0][1] == body


def nobody() -> str:
    """Return the URL of a port that was free a moment ago."""
    with listen("127.0.0.1", 0) as gone:
        return f"http://127.0.0.1:{gone.getsockname()[1]}"


async def test_a_replica_that_is_gone_is_known_at_once_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    url = nobody()
    with caplog.at_level(logging.WARNING, "gateway.web.hop"):
        assert await post_on(url, HEADERS, BODY, seconds=SECONDS) == GONE
    (record,) = caplog.records
    assert record.getMessage() == "replica not reached"
    assert record.__dict__["url"] == url
    assert not any(secret in str(record.__dict__) for secret in ("Bearer", "s1.x"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 202 Accepted\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"\x16\x03\x01\x00\x00",
    ],
)
async def test_what_is_no_answer_counts_as_gone(data: bytes) -> None:
    async with replica(hangs_up_after(data)) as other:
        assert await post_on(other.url, HEADERS, BODY, seconds=SECONDS) == GONE


async def test_what_is_wrong_after_the_head_does_not_matter() -> None:
    async with replica(sends(b"HTTP/1.1 202 Accepted\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n")) as other:
        assert await post_on(other.url, HEADERS, BODY, seconds=SECONDS) == 202


@pytest.mark.parametrize("url", ["", "/", "http://", "http://:80", "http://[::1", "http://127.0.0.1:port"])
async def test_a_url_without_a_replica_in_it_reaches_nobody_not_even_this_machine(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unexpected(*args: object, **options: object) -> None:
        raise AssertionError(args)

    monkeypatch.setattr(asyncio, "open_connection", unexpected)
    assert await post_on(url, HEADERS, BODY, seconds=SECONDS) == GONE


async def test_no_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with replica(sends(ACCEPTED)) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        assert await post_on(nobody(), HEADERS, BODY, seconds=SECONDS) == GONE
        assert not proxy.seen


async def test_a_sender_that_is_cancelled_ends_its_connection() -> None:
    async with replica(says_nothing) as other:
        sending = asyncio.create_task(post_on(other.url, HEADERS, BODY, seconds=SECONDS))
        await asyncio.wait_for(other.arrived.wait(), SECONDS)
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending
        assert sending.cancelled()
        await asyncio.wait_for(other.gone.wait(), SECONDS)


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    certificate = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    hop._tls.cache_clear()
    yield certificate
    hop._tls.cache_clear()


def serves_as(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


async def test_a_replica_may_speak_tls(trusted: Path) -> None:
    async with replica(sends(ACCEPTED), serves_as(trusted)) as other:
        assert await post_on(f"https://{other.authority}", HEADERS, BODY, seconds=SECONDS) == 202
        assert other.seen[0][1] == BODY


async def test_a_replica_whose_certificate_is_not_trusted_is_told_nothing(trusted: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    stranger = make_certificate(tmp_path / "other")
    async with replica(sends(ACCEPTED), serves_as(stranger)) as other:
        assert await post_on(f"https://{other.authority}", HEADERS, BODY, seconds=SECONDS) == GONE
        assert not other.seen
