"""One request gets one answer: plain JSON, or a stream if a message is sent before it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from typing import Any

import pytest

from gateway.protocol import sse
from gateway.web import exchange as module
from gateway.web.exchange import MAX_PENDING_BYTES, BodyTooLarge, ClientGone, Exchange, Patience

JSON = (b"content-type", b"application/json")
REPLICA = (b"x-gateway-replica", b"r1")
DISCONNECT = {"type": "http.disconnect"}

Event = MutableMapping[str, Any]


class Wire:
    """The server's side of ASGI: what arrives is put in, what leaves is kept.

    Attributes:
        reads: cleared, the client takes nothing: sending waits, as uvicorn's does.
    """

    def __init__(self, patience: Patience | None = None) -> None:
        self.arrived: asyncio.Queue[Event] = asyncio.Queue()
        self.sent: list[Event] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self._news = asyncio.Condition()
        self.exchange = Exchange(self.arrived.get, self._send, [REPLICA], patience)

    async def _send(self, event: Event) -> None:
        async with self._news:
            self.sent.append(event)
            self._news.notify_all()
        await self.reads.wait()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with self._news:
            await self._news.wait_for(condition)

    @property
    def status(self) -> int:
        status = self.sent[0]["status"]
        assert isinstance(status, int)
        return status

    @property
    def headers(self) -> dict[bytes, bytes]:
        """The headers of the answer, each of which came once."""
        headers = dict(self.sent[0]["headers"])
        assert len(headers) == len(self.sent[0]["headers"])
        return headers

    @property
    def body(self) -> bytes:
        return b"".join(event["body"] for event in self.sent[1:])

    @property
    def events(self) -> list[bytes]:
        """The messages of a complete stream, in order."""
        assert self.headers[b"content-type"] == b"text/event-stream"
        *blocks, rest = self.body.split(b"\n\n")
        assert rest == b""
        return [block.removeprefix(b"data: ") for block in blocks if block != b":"]

    @property
    def is_complete(self) -> bool:
        """Whether an answer was begun once and ended once, by its last event."""
        kinds = [event["type"] for event in self.sent]
        more = [event["more_body"] for event in self.sent[1:]]
        return kinds == ["http.response.start"] + ["http.response.body"] * len(more) and more == [True] * (
            len(more) - 1
        ) + [False]


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    wire = Wire()
    yield wire
    wire.exchange.close()


@pytest.fixture
async def complaints() -> AsyncIterator[list[str]]:
    """The errors that asyncio reports because nobody handled them."""
    heard: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: heard.append(str(context)))
    gc.disable()  # all that the test makes stays in the youngest generation
    try:
        yield heard
        gc.collect(0)
    finally:
        gc.enable()
    assert heard == []


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quiet stream gets its comment, and a quiet request its stream, at once."""
    monkeypatch.setattr(module, "KEEP_ALIVE_SECONDS", 0.001)
    monkeypatch.setattr(module, "WATCH_AFTER_SECONDS", 0.0)


@pytest.fixture
def watchful(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch for the client begins at once."""
    monkeypatch.setattr(module, "WATCH_AFTER_SECONDS", 0.0)


def serving(wire: Wire, work: Callable[[], Awaitable[bytes]], *, may_stream: bool = True) -> asyncio.Task[None]:
    """Serve one request in a task of its own, as the server does."""

    async def serve() -> None:
        try:
            wire.exchange.begin(may_stream=may_stream)
            await wire.exchange.answer(200, [JSON], await work())
        finally:
            wire.exchange.close()

    return asyncio.create_task(serve())


def held_bytes(exchange: Exchange) -> int:
    """The messages that wait to be sent."""
    return 0 if exchange._events is None else sum(map(len, exchange._events._pending))


async def settle() -> None:
    """Let everything that is ready run."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_without_messages_before_it_the_answer_is_plain_json_of_known_length(wire: Wire) -> None:
    wire.exchange.begin(may_stream=True)
    await wire.exchange.answer(200, [JSON], b'{"id":1}')
    assert wire.is_complete
    assert wire.status == 200
    assert wire.headers == {b"content-type": b"application/json", b"content-length": b"8", REPLICA[0]: REPLICA[1]}
    assert wire.body == b'{"id":1}'


async def test_what_is_posted_first_makes_a_stream_whose_last_event_is_the_answer(wire: Wire) -> None:
    wire.exchange.begin(may_stream=True)
    wire.exchange.post(b'{"n":1}')
    wire.exchange.post(b'{"n":2}')
    await wire.exchange.answer(200, [JSON], b'{"id":1}')
    assert wire.is_complete
    assert wire.events == [b'{"n":1}', b'{"n":2}', b'{"id":1}']
    assert wire.headers[b"x-accel-buffering"] == b"no"
    assert wire.headers[b"cache-control"] == b"no-store"
    assert wire.headers[REPLICA[0]] == REPLICA[1]
    assert b"content-length" not in wire.headers


async def test_posted_messages_are_sent_before_the_answer_is_complete(wire: Wire) -> None:
    finish = asyncio.Event()

    async def work() -> bytes:
        wire.exchange.post(b'{"n":1}')
        await finish.wait()
        return b'{"id":1}'

    task = serving(wire, work)
    await wire.until(lambda: b'{"n":1}' in wire.body)
    finish.set()
    await task
    assert sse.comment() not in wire.body, "the answer does not wait until the stream has been quiet for long"
    assert wire.events == [b'{"n":1}', b'{"id":1}']


async def test_an_error_after_a_stream_has_begun_is_its_last_event(wire: Wire) -> None:
    wire.exchange.post(b'{"n":1}')
    await wire.exchange.answer(500, [JSON], b'{"error":1}')
    assert wire.is_complete
    assert wire.status == 200
    assert wire.events == [b'{"n":1}', b'{"error":1}']


async def test_posts_of_other_threads_arrive_complete_and_in_the_order_of_each(wire: Wire) -> None:
    asyncio.get_running_loop().set_debug(True)  # it then refuses what is not meant for other threads

    def post_many(name: int) -> None:
        for number in range(100):
            wire.exchange.post(b"%d/%d" % (name, number))

    async def work() -> bytes:
        await asyncio.gather(*(asyncio.to_thread(post_many, name) for name in range(4)))
        return b"the end"

    await serving(wire, work)
    *posted, last = wire.events
    assert last == b"the end"
    for name in range(4):
        assert [event for event in posted if event.startswith(b"%d/" % name)] == [
            b"%d/%d" % (name, number) for number in range(100)
        ]
    assert len(posted) == 400


@pytest.mark.parametrize("first", [[], [b'{"n":1}']])
async def test_posts_after_the_answer_are_ignored_whichever_thread_they_come_from(
    wire: Wire, first: list[bytes], complaints: list[str]
) -> None:
    for message in first:
        wire.exchange.post(message)
    await wire.exchange.answer(200, [JSON], b'{"id":1}')
    before = list(wire.sent)
    wire.exchange.post(b"late")
    await asyncio.to_thread(wire.exchange.post, b"late too")
    await settle()
    assert wire.sent == before
    assert held_bytes(wire.exchange) == 0


async def test_what_waits_for_a_client_that_never_reads_is_bounded_and_its_call_still_ends(
    wire: Wire, watchful: None
) -> None:
    wire.reads.clear()
    ended = asyncio.Event()
    message = b"x" * 1000

    async def work() -> bytes:
        for _ in range(10 * MAX_PENDING_BYTES // len(message)):
            wire.exchange.post(message)
        await settle()
        ended.set()
        return b'{"id":1}'

    task = serving(wire, work)
    await ended.wait()
    assert MAX_PENDING_BYTES * 0.9 < held_bytes(wire.exchange) < MAX_PENDING_BYTES * 1.1
    wire.reads.set()
    await task
    assert wire.events[-1] == b'{"id":1}'
    assert len(wire.body) < MAX_PENDING_BYTES * 1.1


async def test_a_request_is_kept_for_a_client_that_misses_notifications(wire: Wire) -> None:
    wire.exchange.post(b"n" * MAX_PENDING_BYTES)
    wire.exchange.post(b"lost")
    for request in (b"1" * MAX_PENDING_BYTES, b"2" * 2 * MAX_PENDING_BYTES):
        wire.exchange.ask(request)
    await wire.exchange.answer(200, [JSON], b"the end")
    wire.exchange.ask(b"late")
    assert [(event[:1], len(event)) for event in wire.events] == [
        (b"n", MAX_PENDING_BYTES),
        (b"1", MAX_PENDING_BYTES),
        (b"2", 2 * MAX_PENDING_BYTES),
        (b"t", len(b"the end")),
    ]


async def test_a_slow_client_that_disconnects_lets_go_of_its_request(wire: Wire, watchful: None) -> None:
    wire.reads.clear()

    async def work() -> bytes:
        wire.exchange.post(b'{"n":1}')
        return b'{"id":1}'

    task = serving(wire, work)
    await wire.until(lambda: bool(wire.sent))
    wire.arrived.put_nowait(DISCONNECT)
    await asyncio.wait({task})
    assert task.cancelled()
    assert wire.exchange.client_gone
    assert len(wire.sent) == 1


async def test_room_is_made_for_further_posts_as_the_client_reads(wire: Wire) -> None:
    half = b"x" * (MAX_PENDING_BYTES // 2)
    for _ in range(6):
        wire.exchange.post(half)
        await settle()
    await wire.exchange.answer(200, [JSON], b"the end")
    assert wire.events == [half] * 6 + [b"the end"]


async def test_a_quiet_stream_is_kept_open_by_comments(wire: Wire, impatient: None) -> None:
    quiet = asyncio.Event()

    async def work() -> bytes:
        wire.exchange.post(b'{"n":1}')
        await quiet.wait()
        return b'{"id":1}'

    task = serving(wire, work)
    await wire.until(lambda: wire.body.count(b":\n\n") >= 2)
    quiet.set()
    await task
    assert wire.is_complete
    assert wire.events == [b'{"n":1}', b'{"id":1}']


async def test_a_request_that_is_quiet_for_long_becomes_a_stream(wire: Wire, impatient: None) -> None:
    quiet = asyncio.Event()

    async def work() -> bytes:
        await quiet.wait()
        return b'{"id":1}'

    task = serving(wire, work)
    await wire.until(lambda: wire.body.startswith(b":\n\n"))
    quiet.set()
    await task
    assert wire.is_complete
    assert wire.events == [b'{"id":1}']


async def test_a_client_that_takes_no_stream_waits_for_its_plain_answer(wire: Wire, impatient: None) -> None:
    began = asyncio.Event()

    async def work() -> bytes:
        wire.exchange.takes_long()
        # This timer is set after that of the exchange would have been.
        asyncio.get_running_loop().call_later(module.KEEP_ALIVE_SECONDS * 2, began.set)
        await began.wait()
        await settle()
        return b'{"id":1}'

    await serving(wire, work, may_stream=False)
    assert wire.headers[b"content-type"] == b"application/json"


async def test_a_client_that_disconnects_cancels_its_request_and_is_sent_nothing(wire: Wire, watchful: None) -> None:
    cancelled = asyncio.Event()

    async def work() -> bytes:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            wire.exchange.post(b"too late")
            await settle()
            raise
        return b"never"

    task = serving(wire, work)
    wire.arrived.put_nowait(DISCONNECT)
    await cancelled.wait()
    await asyncio.wait({task})
    await settle()
    assert task.cancelled()
    assert wire.exchange.client_gone
    assert wire.sent == []


async def test_a_stream_that_is_closed_by_the_client_is_sent_nothing_more(wire: Wire, watchful: None) -> None:
    async def work() -> bytes:
        wire.exchange.post(b'{"n":1}')
        try:
            await asyncio.Event().wait()
        finally:
            wire.exchange.post(b"too late")
            await settle()
        return b"never"

    task = serving(wire, work)
    await wire.until(lambda: b'{"n":1}' in wire.body)
    before = list(wire.sent)
    wire.arrived.put_nowait(DISCONNECT)
    await asyncio.wait({task})
    await settle()
    assert wire.sent == before


async def test_a_function_that_continues_after_its_client_is_gone_cannot_answer(wire: Wire, watchful: None) -> None:
    async def work() -> bytes:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return b"for nobody"

    task = serving(wire, work)
    wire.arrived.put_nowait(DISCONNECT)
    await asyncio.wait({task})
    assert wire.sent == []


@pytest.mark.parametrize("first", [[], [b'{"n":1}']])
async def test_the_client_is_no_longer_watched_once_the_answer_is_sent(
    wire: Wire, watchful: None, first: list[bytes]
) -> None:
    """Servers also send `http.disconnect` after the last event of an answer, which must not cancel its sender."""
    watching = asyncio.Event()

    async def receive() -> Event:
        watching.set()
        return await wire.arrived.get()

    exchange = Exchange(receive, wire._send, [])
    exchange.begin(may_stream=True)
    await watching.wait()
    for message in first:
        exchange.post(message)
    await exchange.answer(200, [JSON], b'{"id":1}')
    wire.arrived.put_nowait(DISCONNECT)
    await settle()
    current = asyncio.current_task()
    assert current is not None
    assert not current.cancelling()
    assert not exchange.client_gone
    exchange.close()


async def test_most_requests_are_over_before_anybody_watches(wire: Wire, watchful: None) -> None:
    wire.exchange.begin(may_stream=True)
    await wire.exchange.answer(200, [JSON], b'{"id":1}')
    wire.exchange.close()
    await settle()
    assert wire.exchange._watcher is None
    assert wire.exchange._quiet is None


async def test_one_timer_waits_for_all_requests_and_ends_with_the_last(watchful: None) -> None:
    patience = Patience()
    wires = [Wire(patience) for _ in range(3)]
    for wire in wires:
        wire.exchange.begin(may_stream=True)
    wires[0].exchange.close()
    await settle()
    assert [wire.exchange._watcher is not None for wire in wires] == [False, True, True]
    assert patience._timer is None
    for wire in wires:
        wire.exchange.close()


async def test_no_content_has_no_content_length(wire: Wire) -> None:
    await wire.exchange.answer(204, [], b"")
    assert wire.is_complete
    assert wire.status == 204
    assert b"content-length" not in wire.headers
    assert wire.body == b""


async def test_an_empty_answer_with_another_status_has_its_length(wire: Wire) -> None:
    await wire.exchange.answer(202, [], b"")
    assert wire.headers[b"content-length"] == b"0"


@pytest.mark.parametrize("first", [[], [b'{"n":1}']])
async def test_headers_that_are_added_come_with_any_answer(wire: Wire, first: list[bytes]) -> None:
    wire.exchange.add_headers([(b"vary", b"origin")])
    for message in first:
        wire.exchange.post(message)
    await wire.exchange.answer(200, [JSON], b"{}")
    assert wire.headers[b"vary"] == b"origin"
    assert wire.headers[REPLICA[0]] == REPLICA[1]


def test_headers_that_are_added_to_one_answer_are_not_added_to_the_next() -> None:
    headers = [REPLICA]

    async def add() -> None:
        wire = Wire()
        Exchange(wire.arrived.get, wire._send, headers).add_headers([(b"vary", b"origin")])

    asyncio.run(add())
    assert headers == [REPLICA]


def chunks(*parts: bytes) -> Iterator[Event]:
    for number, part in enumerate(parts, start=1):
        yield {"type": "http.request", "body": part, "more_body": number < len(parts)}


async def test_a_body_is_read_whole(wire: Wire) -> None:
    for event in chunks(b"a", b"", b"bc"):
        wire.arrived.put_nowait(event)
    assert await wire.exchange.read_body(3) == b"abc"


async def test_a_body_that_is_too_large_is_not_read_on(wire: Wire) -> None:
    for event in chunks(b"ab", b"cd", b"ef"):
        wire.arrived.put_nowait(event)
    with pytest.raises(BodyTooLarge):
        await wire.exchange.read_body(3)
    assert wire.arrived.qsize() == 1


async def test_a_client_that_disconnects_within_its_body_is_gone(wire: Wire) -> None:
    wire.arrived.put_nowait({"type": "http.request", "body": b"{", "more_body": True})
    wire.arrived.put_nowait(DISCONNECT)
    with pytest.raises(ClientGone):
        await wire.exchange.read_body(100)


async def test_messages_are_streamed_as_they_come_until_there_are_no_more(wire: Wire) -> None:
    more = asyncio.Event()

    async def messages() -> AsyncIterator[bytes]:
        yield b"1"
        await more.wait()
        yield b"2"

    task = asyncio.create_task(wire.exchange.stream(messages()))
    await wire.until(lambda: wire.body == b"data: 1\n\n")
    more.set()
    await task
    assert wire.is_complete
    assert wire.events == [b"1", b"2"]
    assert wire.headers[b"x-accel-buffering"] == b"no"


async def test_a_stream_of_messages_that_is_quiet_for_long_begins_only_once(
    wire: Wire, impatient: None, complaints: list[str]
) -> None:
    more = asyncio.Event()

    async def messages() -> AsyncIterator[bytes]:
        await more.wait()
        yield b"1"

    wire.exchange.begin(may_stream=True)
    task = asyncio.create_task(wire.exchange.stream(messages()))
    await wire.until(lambda: wire.body.count(b":\n\n") >= 2)
    await settle()
    more.set()
    await task
    assert wire.is_complete
    assert wire.events == [b"1"]


async def test_a_stream_of_messages_ends_with_its_client_and_without_a_complaint(
    wire: Wire, watchful: None, complaints: list[str]
) -> None:
    closed = asyncio.Event()

    async def messages() -> AsyncIterator[bytes]:
        try:
            yield b"1"
            await asyncio.Event().wait()
        finally:
            closed.set()

    async def serve() -> None:
        wire.exchange.begin(may_stream=True)
        await wire.exchange.stream(messages())

    task = asyncio.create_task(serve())
    await wire.until(lambda: wire.body == b"data: 1\n\n")
    before = list(wire.sent)
    wire.arrived.put_nowait(DISCONNECT)
    await asyncio.wait({task})
    assert task.cancelled()
    assert closed.is_set()
    assert wire.sent == before


async def test_an_error_within_a_stream_of_messages_is_its_last_event(wire: Wire) -> None:
    async def messages() -> AsyncIterator[bytes]:
        yield b"1"
        raise LookupError

    with pytest.raises(LookupError):
        await wire.exchange.stream(messages())
    await wire.exchange.answer(500, [JSON], b'{"error":1}')
    assert wire.is_complete
    assert wire.events == [b"1", b'{"error":1}']
