"""Responses: all that are valid are understood, and nothing without end is received."""

from __future__ import annotations

import asyncio
import itertools
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http_client.client import HttpClient
from gateway.http_client.connection import (
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    MAX_SMALL_PIECES,
    PORTION_BYTES,
    HttpConnection,
)
from gateway.http_client.failures import HttpFailure, HttpReason
from gateway.http_client.incoming import MAX_BUFFERED_BYTES
from tests.http_client.peers import OK, SECONDS, Talk, always, ask, once, serving, soon, then_silence

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


async def failure_of(script: object, *, seconds: float = SECONDS, limit: int = 1 << 20) -> HttpFailure:
    """Return how a request to a server fails that follows a script."""
    async with serving(script) as peer:  # type: ignore[arg-type]
        with pytest.raises(HttpFailure) as caught:
            await ask(HttpClient(peer.url()), seconds=seconds, limit=limit)
        for talk in peer.talks:
            await talk.is_over.wait()
        return caught.value


async def test_a_request_is_sent_as_given() -> None:
    async with serving(always(OK)) as peer:
        client = peer.closing(HttpClient(peer.url(path="/a b/é?q=1 2".replace(" ", "%20"))))
        headers = [(b"Mcp-Name", b"x"), (b"Mcp-Name", b"y")]
        async with client.post(headers, b'{"a":1}', deadline=soon()) as response:
            assert await response.body(10) == b"ok"
        (received,) = peer.requests
        assert received.line == "POST /a%20b/%C3%A9?q=1%202 HTTP/1.1"
        assert received.values("host") == [f"127.0.0.1:{peer.port}"]
        assert received.values("mcp-name") == ["x", "y"]
        assert received.values("accept-encoding") == ["identity"]
        assert received.body == b'{"a":1}'


@pytest.mark.parametrize("header", [(b"a", b"b\r\nc: d"), (b"a\n", b"b"), (b"a", b"b\rc"), (b"a", b"b\0c")])
async def test_a_header_with_a_line_break_is_never_sent(header: tuple[bytes, bytes]) -> None:
    client = HttpClient("http://127.0.0.1:9/")
    with pytest.raises(ValueError, match="line break"):
        client.post([header], b"", deadline=soon())


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (OK, b"ok"),
        (CHUNKED + b"1\r\no\r\n1;x=y\r\nk\r\n0\r\nTrailer: t\r\n\r\n", b"ok"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", b"ok"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\nContent-Encoding: br\r\n\r\n" + OK, b"ok"),
        (b"HTTP/1.1 200 OK\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nContent-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 200\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", b"ok"),
    ],
)
async def test_a_valid_response_is_understood(answer: bytes, body: bytes) -> None:
    async with serving(always(answer)) as peer:
        client = peer.closing(HttpClient(peer.url()))
        for _ in range(3):
            assert await ask(client) == body


def chunks(count: int, size: int) -> bytes:
    return b"%x\r\n%b\r\n" % (size, b"a" * size) * count


async def test_a_body_in_too_many_small_chunks_is_refused_and_other_bodies_are_not() -> None:
    failure = await failure_of(once(CHUNKED + chunks(2 * MAX_SMALL_PIECES, 1)))
    assert (failure.reason, failure.detail) == (HttpReason.MALFORMED, "the body has too many small pieces")
    for count, size in ((MAX_SMALL_PIECES, 1), (4 * MAX_SMALL_PIECES, 32)):
        async with serving(once(CHUNKED + chunks(count, size) + b"0\r\n\r\n")) as peer:
            assert await ask(HttpClient(peer.url()), limit=1 << 20) == b"a" * count * size


async def test_other_work_goes_on_while_a_large_response_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed, rounds, take = [0], 0, HttpConnection._take

    def noted(connection: HttpConnection, data: bytes) -> None:
        assert len(data) <= PORTION_BYTES
        parsed.append(rounds)
        take(connection, data)

    async def go_round() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(HttpConnection, "_take", noted)
    going_round = asyncio.create_task(go_round())
    size = 100 * PORTION_BYTES
    async with serving(always(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"a" * size)) as peer:
        client = peer.closing(HttpClient(peer.url()))
        for _ in range(2):
            assert await ask(client, limit=size) == b"a" * size
    going_round.cancel()
    assert len(peer.talks) == 1
    assert len(parsed) > 200
    assert sum(later > earlier for earlier, later in itertools.pairwise(parsed)) >= 200


@pytest.mark.parametrize("close", [True, False])
async def test_a_large_body_that_ends_with_the_connection_is_complete(close: bool) -> None:
    size = 20 * PORTION_BYTES + 1
    head = b"HTTP/1.0 200 OK\r\n" + (b"\r\n" if close else b"Content-Length: %d\r\n\r\n" % size)
    async with serving(once(head + b"a" * size)) as peer:
        assert await ask(HttpClient(peer.url()), limit=size) == b"a" * size


class Wire(asyncio.Transport):
    """A transport that notes what happens to it, and the owner of its connection."""

    def __init__(self) -> None:
        super().__init__()
        self.aborted = self.paused = False
        self.kept = 0

    def write(self, data: Any) -> None:
        pass

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def get_write_buffer_size(self) -> int:
        return 0

    def freed(self, _connection: HttpConnection) -> None:
        self.kept += 1

    def lost(self, _connection: HttpConnection) -> None:
        pass


def connected() -> tuple[HttpConnection, Wire]:
    connection, wire = HttpConnection(), Wire()
    connection.connection_made(wire)
    connection.owner = wire
    return connection, wire


def aligned() -> bytes:
    """Return a response that ends with the third portion."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (3 * PORTION_BYTES)
    size = 3 * PORTION_BYTES - len(head)
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"a" * size


@pytest.mark.parametrize("rest", [b"", b"x", OK, OK * 10_000])
async def test_a_connection_with_data_behind_its_response_is_not_used_again(rest: bytes) -> None:
    connection, wire = connected()
    incoming = connection.send(b"", b"", soon())
    connection.data_received(aligned() + rest)
    received = b""
    while piece := await asyncio.wait_for(incoming.piece(), SECONDS):
        received += piece
    await asyncio.sleep(0)
    assert received == aligned().partition(b"\r\n\r\n")[2]
    assert (wire.kept, wire.aborted) == ((0, True) if rest else (1, False))
    assert wire.aborted or not wire.paused


async def test_a_response_that_has_arrived_is_complete_though_the_server_has_gone() -> None:
    connection, _wire = connected()
    incoming = connection.send(b"", b"", soon())
    connection.data_received(aligned())
    connection.connection_lost(None)
    assert incoming.is_complete
    assert incoming.everything() == aligned().partition(b"\r\n\r\n")[2]


async def test_a_body_that_ends_with_the_connection_is_read_to_its_end() -> None:
    async with serving(once(b"HTTP/1.0 200 OK\r\n\r\n", b"o", b"k")) as peer:
        client = HttpClient(peer.url())
        assert [await ask(client), await ask(client)] == [b"ok", b"ok"]


async def test_repeated_headers_are_joined_and_trailers_are_dropped() -> None:
    answer = b"HTTP/1.1 404 No\r\nA: 1\r\na: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nB: 3\r\n\r\n"
    async with serving(always(answer)) as peer, HttpClient(peer.url()).post([], b"", deadline=soon()) as response:
        assert (response.status, dict(response.headers)) == (404, {"a": "1, 2", "transfer-encoding": "chunked"})
        assert await response.body(0) == b""


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_returned_and_not_followed(status: int) -> None:
    answer = b"HTTP/1.1 %d Moved\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n" % status
    async with serving(always(answer)) as peer:
        client = peer.closing(HttpClient(peer.url()))
        async with client.post([], b"", deadline=soon()) as response:
            assert response.status == status
        assert len(peer.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: identity, br\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\nok",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        CHUNKED + b"zz\r\n",
        CHUNKED + b"FFFFFFFFFFFFFFFFF\r\n",
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * (MAX_HEADERS + 2), id="headers"),
        pytest.param(b"HTTP/1.1 200 OK\r\nA: " + b"b" * MAX_HEAD_BYTES, id="value"),
        pytest.param(b"HTTP/1.1 200 " + b"b" * MAX_HEAD_BYTES * 2, id="line"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"A: %b\r\n" % (b"b" * 1000) * 100 + b"\r\n", id="values"),
        pytest.param(b"HTTP/1.1 100 Go\r\n\r\n" * 5000, id="interim"),
        pytest.param(b"HTTP/1.1 103 Go\r\nA: b\r\n\r\n" * (MAX_HEADERS + 2), id="interim-headers"),
        pytest.param(CHUNKED + b"1;" + b"x" * MAX_HEAD_BYTES * 2, id="extension"),
        pytest.param(CHUNKED + b"1\r\nx\r\n0\r\nT: " + b"x" * MAX_HEAD_BYTES * 8, id="trailer"),
        pytest.param(CHUNKED + b"0\r\n" + b"A: b\r\n" * (MAX_HEADERS + 2), id="trailers"),
    ],
)
async def test_a_response_that_is_not_valid_or_encoded_or_has_a_head_without_end_is_refused(answer: bytes) -> None:
    failure = await failure_of(then_silence(answer))
    assert (failure.reason, failure.sent) == (HttpReason.MALFORMED, True)


@pytest.mark.parametrize(
    "pieces",
    [
        (),
        (b"HTTP/1.1 200 OK\r\nContent-Le",),
        (b"HTTP/1.1 100 Continue\r\n\r\n",),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", b"abc"),
        (CHUNKED, b"5\r\nab"),
        (CHUNKED, b"2\r\nab\r\n"),
    ],
)
async def test_a_response_that_stops_ends_at_the_deadline_or_with_its_connection(pieces: tuple[bytes, ...]) -> None:
    silent = await failure_of(then_silence(*pieces), seconds=0.05)
    assert (silent.reason, silent.sent) == (HttpReason.TIMED_OUT, True)
    cut = await failure_of(once(*pieces))
    assert (cut.reason, cut.sent) == (HttpReason.CUT, True)


async def test_drops_of_data_do_not_move_the_deadline() -> None:
    async def drip(talk: Talk) -> None:
        await talk.request()
        await talk.send(CHUNKED)
        while True:
            await talk.send(b"1\r\nx\r\n")
            await asyncio.sleep(0.01)

    failure = await failure_of(drip, seconds=0.1)
    assert failure.reason is HttpReason.TIMED_OUT


async def test_a_body_that_says_it_is_too_large_is_not_read() -> None:
    failure = await failure_of(then_silence(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n"), limit=1000)
    assert (failure.reason, failure.sent) == (HttpReason.TOO_LARGE, True)


@pytest.mark.parametrize("head", [CHUNKED, b"HTTP/1.1 200 OK\r\n\r\n"])
async def test_an_endless_body_is_cut_at_its_limit_in_little_memory(head: bytes) -> None:
    block = b"x" * 65536
    piece = b"10000\r\n" + block + b"\r\n" if head is CHUNKED else block
    sent = 0

    async def flood(talk: Talk) -> None:
        nonlocal sent
        await talk.request()
        await talk.send(head)
        while True:
            await talk.send(piece)
            sent += len(block)

    limit = 2_000_000
    tracemalloc.start()
    try:
        failure = await failure_of(flood, limit=limit)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert failure.reason is HttpReason.TOO_LARGE
    assert sent < limit + 20_000_000  # the rest was in the buffers of the system
    assert peak < 4 * limit


async def test_a_slow_reader_of_pieces_holds_the_upstream_back() -> None:
    total = 200 * 65536
    sent = 0

    async def flood(talk: Talk) -> None:
        nonlocal sent
        await talk.request()
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        for _ in range(200):
            await talk.send(b"x" * 65536)
            sent += 65536
        await talk.until_closed()

    async with serving(flood) as peer:
        client = peer.closing(HttpClient(peer.url()))
        async with client.post([], b"", deadline=soon()) as response:
            before = -1
            while before != sent:  # until the sender is stuck
                before = sent
                await asyncio.sleep(0.05)
            assert sent < total
            largest = received = 0
            async for piece in response.chunks():
                largest = max(largest, len(piece))
                received += len(piece)
            assert received == total
            assert largest < MAX_BUFFERED_BYTES + 512 * 1024


async def test_pieces_of_a_stream_arrive_as_they_are_sent() -> None:
    seen: asyncio.Queue[None] = asyncio.Queue()

    async def stream(talk: Talk) -> None:
        await talk.request()
        await talk.send(CHUNKED)
        for number in range(5):
            await talk.send(b"2\r\n%02d\r\n" % number)
            await seen.get()
        await talk.send(b"0\r\n\r\n")
        await talk.until_closed()

    async with serving(stream) as peer, HttpClient(peer.url()).post([], b"", deadline=soon()) as response:
        pieces = []
        async for piece in response.chunks():
            pieces.append(piece)
            seen.put_nowait(None)
        assert pieces == [b"00", b"01", b"02", b"03", b"04"]


async def test_what_arrived_before_a_stream_breaks_is_read_first() -> None:
    script = once(CHUNKED, b"2\r\nok\r\n")
    async with serving(script) as peer, HttpClient(peer.url()).post([], b"", deadline=soon()) as response:
        pieces = response.chunks()
        assert await anext(pieces) == b"ok"
        with pytest.raises(HttpFailure) as caught:
            await anext(pieces)
        assert caught.value.reason is HttpReason.CUT


def cuts(data: bytes, points: list[int]) -> Iterator[bytes]:
    """Cut data at these points."""
    places = sorted({point % (len(data) + 1) for point in points} | {0, len(data)})
    for start, end in itertools.pairwise(places):
        yield data[start:end]


@given(
    bodies=st.lists(st.lists(st.binary(max_size=40), max_size=4), min_size=1, max_size=3),
    chunked=st.booleans(),
    interim=st.booleans(),
    points=st.lists(st.integers(0, 1000), max_size=8),
)
async def test_responses_are_the_same_however_they_are_cut(
    bodies: list[list[bytes]], chunked: bool, interim: bool, points: list[int]
) -> None:
    answers = iter([_written(parts, chunked=chunked, interim=interim) for parts in bodies])

    async def script(talk: Talk) -> None:
        for answer in answers:
            await talk.request()
            for piece in cuts(answer, points):
                await talk.send(piece)
                await asyncio.sleep(0)
        await talk.until_closed()

    async with serving(script) as peer:
        client = peer.closing(HttpClient(peer.url(), max_connections=1))
        for parts in bodies:
            assert await ask(client) == b"".join(parts)
        assert len(peer.talks) == 1


def _written(parts: list[bytes], *, chunked: bool, interim: bool) -> bytes:
    before = b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n" if interim else b""
    if chunked:
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts if part)
        return before + CHUNKED + chunks + b"0\r\n\r\n"
    body = b"".join(parts)
    return before + b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body


@given(answer=st.binary(max_size=200).map(lambda data: b"HTTP/1.1 200 OK\r\n" + data) | st.binary(max_size=200))
async def test_any_bytes_are_a_response_or_a_failure(answer: bytes) -> None:
    async with serving(once(answer)) as peer:
        client = peer.closing(HttpClient(peer.url()))
        assert await _outcome(client) in {None, HttpReason.MALFORMED, HttpReason.CUT, HttpReason.TOO_LARGE}


async def _outcome(client: HttpClient) -> HttpReason | None:
    try:
        async with client.post([], b"", deadline=soon()) as response:
            await response.body(1000)
    except HttpFailure as failure:
        return failure.reason
    return None
