"""A message reaches the replica that it is for and brings a reply, or the sender soon knows that it does not."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.http_client.tls import contexts_of_system
from gateway.tokens.hop_messages import NoReply
from gateway.web.hop import MAX_POSTS, HopClient
from gateway.web.listener import listen
from tests.certificates import make_certificate
from tests.waiting import until

SECONDS = 20.0
SHORT = 0.3
MESSAGE = b"\x01sealed"
REPLY = b"\x01reply"
ANSWERED = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n" + REPLY

post = HopClient().post

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Replica:
    """A server that reads one request per connection, and sends the answer that the test sets."""

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
            (length,) = (int(line.partition(b": ")[2]) for line in head if line.startswith(b"Content-Length: "))
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
    writer.write(b"HTTP/1.1 200 OK\r\nx: ")
    while True:
        writer.write(b"y")
        await writer.drain()
        await asyncio.sleep(0.01)


async def never_ends_its_body(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def never_ends_its_head(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"x: " + b"y" * 1000 + b"\r\n")
        await writer.drain()


async def test_the_message_arrives_as_it_was_and_the_reply_is_returned() -> None:
    async with replica(sends(ANSWERED)) as other:
        assert await post(other.url, MESSAGE, seconds=SECONDS) == REPLY
    ((head, body),) = other.seen
    assert body == MESSAGE
    assert head == [
        b"POST /_gateway/hop HTTP/1.1",
        f"Host: {other.authority}".encode(),
        b"Accept-Encoding: identity",
        b"Content-Type: application/vnd.sealed-gateway.hop",
        b"Content-Length: %d" % len(MESSAGE),
        b"",
        b"",
    ]


@pytest.mark.parametrize("path", ["", "/", "/replica/7", "/replica/7/"])
async def test_the_replica_may_be_below_a_path(path: str) -> None:
    async with replica(sends(ANSWERED)) as other:
        assert await post(other.url + path, MESSAGE, seconds=SECONDS) == REPLY
    assert other.seen[0][0][0] == b"POST %b/_gateway/hop HTTP/1.1" % path.rstrip("/").encode()


@pytest.mark.parametrize("status", [201, 202, 204, 206, 400, 401, 404, 413, 429, 500, 503])
async def test_any_other_status_is_not_a_reply_and_the_error_names_it(status: int) -> None:
    async with replica(sends(b"HTTP/1.1 %d Any\r\ncontent-length: 6\r\n\r\n" % status + REPLY)) as other:
        why = await unanswered(other.url, MESSAGE, seconds=SECONDS)
    assert why == ("something else answers at the URL", {"url": other.url, "status": status})


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    async with replica(sends(ANSWERED)) as elsewhere:
        redirect = b"HTTP/1.1 %d See\r\nlocation: %b/mcp\r\n\r\n" % (status, elsewhere.url.encode())
        async with replica(sends(redirect)) as other:
            await unanswered(other.url, MESSAGE, seconds=SECONDS)
        assert len(other.seen) == 1
        assert not elsewhere.seen


async def test_what_announces_an_answer_is_not_the_answer() -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
    async with replica(sends(*interim, ANSWERED)) as other:
        assert await post(other.url, MESSAGE, seconds=SECONDS) == REPLY


async def test_an_answer_in_pieces_is_put_together() -> None:
    async def answer(writer: asyncio.StreamWriter) -> None:
        for byte in ANSWERED:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)

    async with replica(answer) as other:
        assert await post(other.url, MESSAGE, seconds=SECONDS) == REPLY


async def test_a_body_without_end_is_not_a_reply() -> None:
    async with replica(never_ends_its_body) as other, asyncio.timeout(SECONDS):
        await unanswered(other.url, MESSAGE, seconds=10 * SECONDS)
        await asyncio.wait_for(other.gone.wait(), SECONDS)


async def test_a_reply_in_chunks_is_put_together() -> None:
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n\x01r\r\n4\r\neply\r\n0\r\n\r\n"
    async with replica(sends(chunked)) as other:
        assert await post(other.url, MESSAGE, seconds=SECONDS) == REPLY


async def test_the_first_answer_is_the_answer_whatever_follows_it() -> None:
    async with replica(sends(ANSWERED + b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n")) as other:
        assert await post(other.url, MESSAGE, seconds=SECONDS) == REPLY


async def test_a_head_over_64_kib_is_not_an_answer() -> None:
    async with replica(sends(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 65536 + b"\r\n\r\n")) as other:
        await unanswered(other.url, MESSAGE, seconds=SECONDS)


async def test_a_head_without_end_is_not_an_answer() -> None:
    async with replica(never_ends_its_head) as other, asyncio.timeout(SECONDS):
        await unanswered(other.url, MESSAGE, seconds=10 * SECONDS)
        await asyncio.wait_for(other.gone.wait(), SECONDS)


@pytest.mark.parametrize("answer", [says_nothing, drips])
async def test_a_slow_replica_is_given_up_and_its_connection_ended(answer: Answer) -> None:
    async with replica(answer) as other:
        await unanswered(other.url, MESSAGE, seconds=SHORT)
        await asyncio.wait_for(other.gone.wait(), SECONDS)


async def test_a_sender_has_as_much_time_as_it_was_given() -> None:
    async with replica(says_nothing) as other:
        hasty = asyncio.create_task(post(other.url, MESSAGE, seconds=SHORT))
        patient = asyncio.create_task(post(other.url, MESSAGE, seconds=SECONDS))
        done, _ = await asyncio.wait({hasty, patient}, return_when=asyncio.FIRST_COMPLETED)
        assert done == {hasty}
        patient.cancel()
        await asyncio.wait({patient})


async def test_a_replica_that_takes_no_connection_is_given_up() -> None:
    with listen("127.0.0.1", 0) as nobody_accepts:
        port = nobody_accepts.getsockname()[1]
        await unanswered(f"http://127.0.0.1:{port}", MESSAGE, seconds=SHORT)


async def test_a_replica_that_reads_nothing_of_a_large_request_is_given_up() -> None:
    with listen("127.0.0.1", 0) as nobody_reads:
        port = nobody_reads.getsockname()[1]
        await unanswered(f"http://127.0.0.1:{port}", bytes(1 << 25), seconds=SHORT)


async def test_a_large_request_arrives_whole() -> None:
    body = bytes(1 << 22)
    async with replica(sends(ANSWERED)) as other:
        assert await post(other.url, body, seconds=SECONDS) == REPLY
    assert other.seen[0][1] == body


async def unanswered(url: str, message: bytes, **options: Any) -> tuple[str, dict[str, object]]:
    """Post a message that gets no reply, and return why, with the fields for the log."""
    with pytest.raises(NoReply) as caught:
        await post(url, message, **options)
    return str(caught.value), caught.value.fields


def nobody() -> str:
    """Return the URL of a port that was free a moment ago."""
    with listen("127.0.0.1", 0) as gone:
        return f"http://127.0.0.1:{gone.getsockname()[1]}"


async def test_a_replica_that_is_gone_is_known_at_once() -> None:
    url = nobody()
    text, fields = await unanswered(url, MESSAGE, seconds=SECONDS)
    assert (text, fields["url"]) == ("no process answers at the URL", url)
    assert fields["reason"] == "unreachable: Connection refused"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n" + REPLY,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"\x16\x03\x01\x00\x00",
    ],
)
async def test_anything_but_an_answer_counts_as_gone(data: bytes) -> None:
    async with replica(hangs_up_after(data)) as other:
        await unanswered(other.url, MESSAGE, seconds=SECONDS)


async def test_messages_to_a_silent_process_hold_few_connections_and_keep_none_from_others() -> None:
    async with replica(says_nothing) as silent, replica(sends(ANSWERED)) as other:
        client = HopClient()
        waiting = [asyncio.create_task(client.post(silent.url, MESSAGE, seconds=SECONDS)) for _ in range(100)]
        await until(lambda: len(silent.seen) >= MAX_POSTS)
        assert await client.post(other.url, MESSAGE, seconds=SECONDS) == REPLY
        assert len(silent.seen) == MAX_POSTS
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)


@pytest.mark.parametrize("url", ["", "/", "http://", "http://:80", "http://[::1", "http://127.0.0.1:port"])
async def test_a_url_without_a_replica_in_it_reaches_nobody_not_even_this_machine(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unexpected(*args: object, **options: object) -> None:
        raise AssertionError(args)

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", unexpected)
    await unanswered(url, MESSAGE, seconds=SECONDS)


async def test_no_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with replica(sends(ANSWERED)) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        await unanswered(nobody(), MESSAGE, seconds=SECONDS)
        assert not proxy.seen


async def test_a_sender_that_is_cancelled_ends_its_connection() -> None:
    async with replica(says_nothing) as other:
        sending = asyncio.create_task(post(other.url, MESSAGE, seconds=SECONDS))
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
    contexts_of_system.cache_clear()
    yield certificate
    contexts_of_system.cache_clear()


def serves_as(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


async def test_a_replica_may_speak_tls(trusted: Path) -> None:
    async with replica(sends(ANSWERED), serves_as(trusted)) as other:
        assert await post(f"https://{other.authority}", MESSAGE, seconds=SECONDS) == REPLY
        assert other.seen[0][1] == MESSAGE


async def test_a_replica_whose_certificate_is_not_trusted_gets_nothing(trusted: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    stranger = make_certificate(tmp_path / "other")
    async with replica(sends(ANSWERED), serves_as(stranger)) as other:
        await unanswered(f"https://{other.authority}", MESSAGE, seconds=SECONDS)
        assert not other.seen
