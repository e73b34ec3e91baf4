"""A request to another process is answered by a stream, through real sockets, whatever is done to it on the way."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.errors import HopReason
from gateway.observability.metrics import Telemetry
from gateway.observability.process_metrics import ProcessTelemetry, StreamEnd
from gateway.process.app import GatewayApp, _connection_limits
from gateway.sealing.envelope import Sealer
from gateway.sealing.hop import NO_BOOT, Head, HopContent, HopSealer, Process, Role, SeenNonces
from gateway.sealing.hop_frames import FrameReader, StreamReason, StreamRefused
from gateway.sealing.keyring import KeyRing
from gateway.tokens import stream_receiver, stream_sender
from gateway.tokens.hop_messages import HOP_PATH, Hops, LostPeer
from gateway.tokens.key_holder import KeyHolder
from gateway.tokens.request_ids import ReplicaAddress
from gateway.tokens.stream_receiver import Send
from gateway.tokens.stream_sender import STREAM_TYPE, AnswerStream, StreamSender
from gateway.web import hop_endpoint
from gateway.web import neighbours as neighbour_sockets
from gateway.web.hop import HopClient
from gateway.web.neighbours import LocalNeighbours
from loadtest.cluster import new_key
from tests.asgi import HOST, Client, make_app
from tests.http.serving import Serving, serving
from tests.waiting import until
from tests.web.relay import Relay, relaying

KEY: Final = new_key()
SECONDS: Final = 20.0
MAX_BYTES: Final = 4_000_000


class Handlers:
    """The handlers of a process. They run in the thread of its server.

    Attributes:
        sent: how many bodies were sent of the last answer.
        running: how many requests are handled now.
        release: lets the handler "wait" end.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.running = 0
        self.cancelled = 0
        self.release = threading.Event()

    def register(self, app: GatewayApp) -> None:
        receiver = app._services.stream_receiver
        for kind in ("echo", "notes", "wait", "refuse", "crash", "flood"):
            receiver.handle(kind, getattr(self, kind))

    async def echo(self, body: Mapping[str, Any], _send: Send) -> Mapping[str, Any]:
        return body

    async def notes(self, body: Mapping[str, Any], send: Send) -> Mapping[str, Any]:
        for number in range(body["count"]):
            await send({"note": number, "data": bytes(body.get("size", 0))})
        return {"result": "done"}

    async def flood(self, body: Mapping[str, Any], send: Send) -> Mapping[str, Any]:
        self.sent = 0
        for _ in range(body["count"]):
            await send({"data": bytes(50_000)})
            self.sent += 1
        return {"result": "done"}

    async def wait(self, _body: Mapping[str, Any], send: Send) -> Mapping[str, Any]:
        self.running += 1
        try:
            await send({"note": "begun"})
            await until(self.release.is_set)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        return {"result": "done"}

    async def refuse(self, body: Mapping[str, Any], send: Send) -> Mapping[str, Any]:
        for _ in range(body.get("after", 0)):
            await send({})
        raise StreamRefused(body["reason"])

    async def crash(self, body: Mapping[str, Any], send: Send) -> Mapping[str, Any]:
        for _ in range(body["after"]):
            await send({})
        raise RuntimeError


class Place:
    """A replica that serves behind a relay, and a worker that sends to it."""

    def __init__(self, app: GatewayApp, relay: Relay, server: Serving) -> None:
        self.app = app
        self._server = server
        self.relay = relay
        self.handlers = Handlers()
        self.handlers.register(app)
        self.address = ReplicaAddress(relay.url, app._services.waiting.boot)
        self.skew = 0.0
        self.telemetry = ProcessTelemetry()
        self.sender = make_sender(self.telemetry, clock=lambda: time.time() + self.skew)

    def stop(self) -> None:
        """Stop the process without waiting for its requests."""
        self._server.server.force_exit = True
        self._server.stop()

    def stream(
        self, kind: str, body: Mapping[str, Any], address: ReplicaAddress | None = None, *, max_bytes: int = MAX_BYTES
    ) -> AnswerStream:
        return self.sender.stream(address or self.address, kind, body, seconds=SECONDS, max_bytes=max_bytes)

    async def ask(self, kind: str, address: ReplicaAddress | None = None, /, **body: Any) -> list[Mapping[str, Any]]:
        async with self.stream(kind, body, address) as stream:
            return [each async for each in stream]

    async def lost(self, kind: str, address: ReplicaAddress | None = None, /, **body: Any) -> LostPeer:
        with pytest.raises(LostPeer) as caught:
            await self.ask(kind, address, **body)
        return caught.value

    async def refused(self, kind: str, address: ReplicaAddress | None = None, /, **body: Any) -> StreamRefused:
        with pytest.raises(StreamRefused) as caught:
            await self.ask(kind, address, **body)
        return caught.value

    def rejected(self, reason: HopReason) -> float:
        return _value(self.app._services.telemetry, "gateway_hop_messages_refused_total", reason=reason.value)

    def sealed_refusals(self, reason: StreamReason) -> float:
        return _value(self.app._services.telemetry, "gateway_hop_streams_refused_total", reason=reason.value)

    def sent(self, end: StreamEnd) -> float:
        return _value(self.telemetry, "gateway_hop_streams_sent_total", result=end.value)


def _value(telemetry: ProcessTelemetry, name: str, **labels: str) -> float:
    return telemetry.registry.get_sample_value(name, labels) or 0.0


def make_sender(
    telemetry: ProcessTelemetry,
    *,
    clock: Callable[[], float] = time.time,
    role: Role = Role.WORKER,
    neighbours: LocalNeighbours | None = None,
    own_url: str = "",
) -> StreamSender:
    process = Process(role, os.urandom(16))
    return StreamSender(make_keys(clock), process, telemetry, neighbours=neighbours, own_url=own_url)


def make_keys(clock: Callable[[], float] = time.time) -> KeyHolder:
    return KeyHolder(KeyRing.parse(KEY), "tests", clock=clock, random_bytes=os.urandom)


@contextlib.asynccontextmanager
async def placed(relay: Relay, **settings: Any) -> AsyncIterator[Place]:
    app = make_app(seal_keys=KEY, replica_url=relay.url, **settings)
    app.is_running = False
    with serving(app, _connection_limits(app._services.settings)) as server:
        relay.port = server.port
        await until(lambda: app.is_running)
        place = Place(app, relay, server)
        try:
            yield place
        finally:
            await place.sender.aclose()


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for the sockets of the processes of one host."""
    with tempfile.TemporaryDirectory(prefix="gw-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


@pytest.fixture
async def place(runtime: Path) -> AsyncIterator[Place]:
    async with relaying() as relay, placed(relay) as place:
        yield place


async def test_bodies_come_as_they_are_sent_and_the_last_one_ends_the_stream(place: Place) -> None:
    async with place.stream("wait", {}) as stream:
        boots = [stream.boot]
        assert await anext(stream) == {"note": "begun"}
        assert [*boots, stream.boot] == [None, place.address.boot]
        place.handlers.release.set()
        assert [body async for body in stream] == [{"result": "done"}]
    assert place.sent(StreamEnd.ANSWERED) == 1


async def test_any_process_at_a_url_may_answer_and_says_which_one_it_is(place: Place) -> None:
    for _ in range(2):
        async with place.stream("echo", {"n": 1}, ReplicaAddress(place.relay.url, NO_BOOT)) as stream:
            assert [body async for body in stream] == [{"n": 1}]
            assert stream.boot == place.address.boot
    assert place.relay.requests[0].count(b"POST ") == 3, "the sender remembers which process is there"
    assert place.sent(StreamEnd.ANSWERED) == 2
    assert place.sealed_refusals(StreamReason.OTHER_PROCESS) == 0


async def test_a_request_to_any_process_at_a_url_is_of_no_use_to_the_next_one_there(runtime: Path) -> None:
    """A process is restarted, and has not seen what somebody has listened to before."""
    async with relaying() as relay:
        anyone = ReplicaAddress(relay.url, NO_BOOT)
        async with placed(relay) as first:
            assert await first.ask("echo", anyone, n=1) == [{"n": 1}]
            sender = first.sender
        async with placed(relay) as second:
            ran: list[object] = []

            async def note(body: Mapping[str, Any], _send: Send) -> Mapping[str, Any]:
                ran.append(body)
                return body

            second.app._services.stream_receiver.handle("echo", note)
            await replayed(second)
            await until(lambda: second.sealed_refusals(StreamReason.OTHER_PROCESS) == 1)
            assert ran == []
            second.sender = sender
            async with second.stream("echo", {"n": 2}, anyone) as stream:
                assert [body async for body in stream] == [{"n": 2}]
                assert stream.boot == second.address.boot
            assert ran == [{"n": 2}]


@pytest.mark.parametrize("size", [0, 65_000, 70_000, 1_300_000])
async def test_large_bodies_arrive_whole_in_both_directions(place: Place, size: int) -> None:
    data = os.urandom(size)
    assert await place.ask("echo", data=data) == [{"data": data}]


@pytest.mark.setting("max_body_bytes")
async def test_a_request_has_room_for_the_largest_body_of_a_client_and_more_is_refused(runtime: Path) -> None:
    async with relaying() as relay, placed(relay, max_body_bytes=100_000) as place:
        assert await place.ask("notes", count=0, data=bytes(100_000 + 256 * 1024 - 100)) == [{"result": "done"}]
        lost = await place.lost("notes", count=0, data=bytes(100_000 + 256 * 1024))
        assert lost.fields["status"] == 404
        assert place.rejected(HopReason.TOO_LARGE) == 1


async def test_a_body_over_the_limit_of_its_reader_is_given_up(place: Place) -> None:
    with pytest.raises(LostPeer) as caught:
        async with place.stream("echo", {"data": bytes(200_000)}, max_bytes=100_000) as stream:
            await anext(stream)
    assert caught.value.fields["reason"] == "too_large"


async def test_requests_one_after_the_other_share_a_connection_and_running_ones_do_not(place: Place) -> None:
    for number in range(20):
        assert await place.ask("echo", n=number) == [{"n": number}]
        assert len(await place.ask("notes", count=5, size=100_000)) == 6
    assert place.relay.connections == 1
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(5):
            await anext(await stack.enter_async_context(place.stream("wait", {})))
        assert place.relay.connections == 5
        place.handlers.release.set()


async def test_a_stream_is_no_load_and_takes_no_place(place: Place) -> None:
    async with place.stream("wait", {}) as stream:
        await anext(stream)
        assert place.app._services.load.in_flight == 0
        place.handlers.release.set()


@pytest.mark.setting("max_connections")
async def test_streams_leave_clients_all_their_connections(runtime: Path) -> None:
    async with relaying() as relay, placed(relay, max_connections=2) as place, contextlib.AsyncExitStack() as stack:
        for _ in range(5):
            await anext(await stack.enter_async_context(place.stream("wait", {})))
        assert relay.connections == 5
        clients = [await asyncio.open_connection("127.0.0.1", relay.port) for _ in range(3)]
        answers = [await _alive(*client) for client in clients]
        assert answers == [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\n", b""]
        place.handlers.release.set()
        for _, writer in clients:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def _alive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Return the first line of the answer to a client; b"" if its connection was closed."""
    with contextlib.suppress(OSError):
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        return await reader.readline()
    return b""


async def test_the_handler_is_cancelled_when_its_reader_leaves(place: Place) -> None:
    async with place.stream("wait", {}) as stream:
        await anext(stream)
    await until(lambda: place.handlers.cancelled == 1)
    assert place.sent(StreamEnd.LEFT) == 1
    assert await place.ask("echo") == [{}]


async def test_a_handler_waits_while_nobody_reads(place: Place) -> None:
    async with place.stream("flood", {"count": 400}) as stream:
        await anext(stream)
        before = -1
        while before != place.handlers.sent:
            before = place.handlers.sent
            await asyncio.sleep(0.2)
        assert before < 300
        assert len([body async for body in stream]) == 400
    assert place.handlers.sent == 400


async def test_a_process_that_works_for_long_shows_that_it_is_there(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_receiver, "ALIVE_SECONDS", 0.01)

    async def silent(_body: Mapping[str, Any], _send: Send) -> Mapping[str, Any]:
        await until(place.handlers.release.is_set)
        raise StreamRefused(StreamReason.DRAINING)

    place.app._services.stream_receiver.handle("silent", silent)
    async with place.stream("silent", {}) as stream:
        reading = asyncio.ensure_future(anext(stream))
        await until(lambda: stream.boot)
        place.handlers.release.set()
        with pytest.raises(StreamRefused, match="draining"):
            await reading


async def test_a_process_that_shows_nothing_is_lost(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_sender, "SILENT_SECONDS", 0.2)
    lost = await place.lost("wait")
    assert (lost.fields["reason"], lost.may_have_acted) == ("silent", True)
    await until(lambda: place.handlers.cancelled == 1)
    place.relay.change = lambda _: b""
    assert (await place.lost("echo")).fields["reason"] == "silent"


async def test_a_stream_ends_when_its_time_is_over(place: Place) -> None:
    with pytest.raises(LostPeer):
        async with place.sender.stream(place.address, "wait", {}, seconds=0.3, max_bytes=MAX_BYTES) as stream:
            [_ async for _ in stream]
    assert place.sent(StreamEnd.LOST) == 1


REFUSALS: Final = {
    "nothing": StreamReason.UNKNOWN_KIND,
    "draining": StreamReason.DRAINING,
    "malformed": StreamReason.MALFORMED,
    "overloaded": StreamReason.OVERLOADED,
}


@pytest.mark.parametrize("kind", REFUSALS)
async def test_a_process_that_refuses_says_so(place: Place, kind: str) -> None:
    reason = REFUSALS[kind]
    refused = await (place.refused("nothing") if kind == "nothing" else place.refused("refuse", reason=kind))
    assert (refused.reason, refused.boot) == (reason, place.address.boot)
    assert place.sealed_refusals(reason) == place.sent(StreamEnd.REFUSED) == 1


async def test_a_process_says_that_it_is_not_the_one_that_was_asked(place: Place) -> None:
    refused = await place.refused("echo", ReplicaAddress(place.relay.url, b"z" * 16))
    assert (refused.reason, refused.boot) == (StreamReason.OTHER_PROCESS, place.address.boot)


async def test_a_flood_of_nonces_is_refused_and_nothing_is_forgotten(place: Place) -> None:
    place.app._services.stream_receiver._seen = SeenNonces(3)
    for _ in range(3):
        await place.ask("echo")
    assert (await place.refused("echo")).reason == StreamReason.OVERLOADED
    assert await replayed(place) == 404


async def test_a_process_answers_a_bounded_number_at_a_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_receiver, "MAX_RUNNING", 1)
    async with place.stream("wait", {}) as stream:
        await anext(stream)
        assert (await place.refused("echo")).reason == StreamReason.OVERLOADED
        place.handlers.release.set()
        assert [body async for body in stream]
    await until(lambda: place.app._services.stream_receiver._running == 0)
    assert await place.ask("echo") == [{}]


async def replayed(place: Place, number: int = 0) -> int:
    """Send what went over a connection once more, and return the status of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", place.relay.port)
    writer.write(place.relay.requests[number])
    status = int((await asyncio.wait_for(reader.readline(), SECONDS)).split()[1])
    writer.close()
    await writer.wait_closed()
    return status


async def test_a_request_that_was_listened_to_is_of_no_use(place: Place) -> None:
    await place.ask("echo", text="a-secret")
    assert b"a-secret" not in place.relay.requests[0]
    assert await replayed(place) == 404
    assert place.rejected(HopReason.REPLAYED) == 1


@pytest.mark.parametrize("seconds", [-31, 31])
async def test_a_request_of_another_time_gets_no_answer(place: Place, seconds: float) -> None:
    place.skew = seconds
    assert (await place.lost("echo")).fields["status"] == 404
    assert place.rejected(HopReason.STALE) == 1


@pytest.mark.parametrize("after", [0, 3])
async def test_a_fault_of_the_handler_is_no_refusal(place: Place, after: int) -> None:
    lost = await place.lost("crash", after=after)
    assert lost.may_have_acted
    await place.lost("refuse", reason="draining", after=1)
    assert await place.ask("echo") == [{}]


@pytest.mark.parametrize("kept", [0, 20, 200, 300, 100_000, -10])
async def test_a_stream_that_is_cut_is_lost(place: Place, kept: int) -> None:
    left = [400_000 + kept if kept < 0 else kept]

    def cut(data: bytes) -> bytes | None:
        if left[0] <= 0:
            return None
        part = data[: left[0]]
        left[0] -= len(data)
        return part

    place.relay.change = cut
    lost = await place.lost("notes", count=4, size=100_000)
    assert lost.may_have_acted


async def test_a_process_that_is_forced_to_stop_cuts_its_streams_off(
    runtime: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with relaying() as relay, placed(relay) as place:
        async with place.stream("wait", {}) as stream:
            await anext(stream)
            place.stop()
            with pytest.raises(LostPeer):
                [_ async for _ in stream]
        assert place.handlers.cancelled == 1
    assert "request failed" not in caplog.messages


async def test_the_answers_to_two_requests_are_not_taken_for_each_other(place: Place) -> None:
    """A relay answers a request with what another one got."""
    answers: list[bytes] = []

    def keep(data: bytes) -> bytes:
        answers.append(data)
        return data

    place.relay.change = keep
    assert await place.ask("echo", n=1) == [{"n": 1}]
    first = answers[0]
    place.relay.change = lambda _: first
    lost = await place.lost("echo", n=1)
    assert lost.fields["reason"] == "not_authentic"


async def test_a_request_that_comes_back_is_no_answer(place: Place) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n"

    def reflect(_: bytes) -> bytes:
        message = bytes(place.relay.requests[-1]).partition(b"\r\n\r\n")[2]
        body = len(message).to_bytes(4, "big") + message
        return head % (STREAM_TYPE, len(body)) + body

    place.relay.change = reflect
    lost = await place.lost("echo", data=b"x" * 100)
    assert lost.fields["reason"] in {"malformed", "other_receiver", "not_authentic"}


STRANGE: Final = {
    "404": b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
    "502": b"HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>",
    "200 page": b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>",
    "200 json": b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
    "redirect": b"HTTP/1.1 307 See\r\nlocation: /other\r\ncontent-length: 0\r\n\r\n",
    "empty": b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: 0\r\n\r\n" % STREAM_TYPE,
    "garbage": b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: 8\r\n\r\n\0\0\0\4abcd" % STREAM_TYPE,
    "no http": b"hello\r\n\r\n",
}


@pytest.mark.parametrize("answer", STRANGE)
async def test_what_something_else_says_is_neither_an_answer_nor_a_refusal(place: Place, answer: str) -> None:
    place.relay.change = lambda _: STRANGE[answer]
    await place.lost("echo")
    assert place.sent(StreamEnd.LOST) == 1


async def test_where_nobody_listens_nothing_can_have_happened(place: Place) -> None:
    with contextlib.closing(_bound()) as nobody:
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        assert not (await place.lost("echo", ReplicaAddress(url, NO_BOOT))).may_have_acted
    assert not (await place.lost("echo", ReplicaAddress("http://", NO_BOOT))).may_have_acted
    assert not (await place.lost("echo", ReplicaAddress("", b"z" * 16))).may_have_acted


def _bound() -> socket.socket:
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    return bound


async def test_a_request_for_a_neighbour_is_passed_on_and_its_stream_comes_back(runtime: Path) -> None:
    """Two processes share a URL, which leads to the first one."""
    async with relaying() as relay, placed(relay) as other, placed(relay) as first:
        assert other.address.boot != first.address.boot
        async with first.stream("wait", {}, other.address) as stream:
            assert await anext(stream) == {"note": "begun"}
            assert (other.handlers.running, first.handlers.running) == (1, 0)
            other.handlers.release.set()
            assert [body async for body in stream] == [{"result": "done"}]
            assert stream.boot == other.address.boot
        assert len(await first.ask("notes", other.address, count=9, size=100_000)) == 10
        other.handlers.release.clear()
        async with first.stream("wait", {}, other.address) as stream:
            await anext(stream)
        await until(lambda: other.handlers.cancelled == 1)
        assert (await first.refused("nothing", other.address)).boot == other.address.boot
        assert await replayed(first) == 404


async def test_a_neighbour_needs_no_url(runtime: Path) -> None:
    async with relaying() as relay, placed(relay) as place:
        neighbours = LocalNeighbours(make_keys(), b"m" * 16, max_bytes=1)
        sender = make_sender(place.telemetry, role=Role.REPLICA, neighbours=neighbours)
        place.sender = sender
        for size in (0, 1_000_000):
            assert await place.ask("echo", data=bytes(size)) == [{"data": bytes(size)}]
        async with place.stream("flood", {"count": 400}) as stream:
            await anext(stream)
            before = -1
            while before != place.handlers.sent:
                before = place.handlers.sent
                await asyncio.sleep(0.2)
            assert before < 300
        async with place.stream("wait", {}) as stream:
            await anext(stream)
        await until(lambda: place.handlers.cancelled == 1)
        assert (await place.refused("nothing")).reason == StreamReason.UNKNOWN_KIND
        assert (await place.lost("crash", after=2)).may_have_acted
        assert relay.connections == 0


async def test_a_neighbour_that_reads_nothing_is_given_up(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbour_sockets, "UNREAD_SECONDS", 0.1)
    async with relaying() as relay, placed(relay) as place:
        place.sender = make_sender(place.telemetry, neighbours=LocalNeighbours(make_keys(), b"m" * 16, max_bytes=1))
        async with place.stream("flood", {"count": 1000}) as stream:
            await anext(stream)
            await until(lambda: place.app._services.stream_receiver._running == 0)
            with pytest.raises(LostPeer):
                [_ async for _ in stream]
        assert place.handlers.sent < 1000


async def test_a_neighbour_gets_messages_with_the_largest_body_of_a_client(runtime: Path) -> None:
    async with relaying() as relay, placed(relay, max_body_bytes=2_000_000) as place:
        place.app._services.wires.hops.handle("count", lambda body: {"bytes": len(body["data"])})
        telemetry = Telemetry()
        neighbours = LocalNeighbours(make_keys(), b"m" * 16, max_bytes=1)
        hops = Hops(
            make_keys(),
            ReplicaAddress("", b"m" * 16),
            post=HopClient().post,
            neighbours=neighbours,
            telemetry=telemetry,
            max_bytes=1,
        )
        assert await hops.ask(place.address, "count", {"data": bytes(2_000_000)}) == {"bytes": 2_000_000}


async def test_large_requests_on_known_connections_are_not_kept_out_by_strangers(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.ask("echo")
    monkeypatch.setattr(hop_endpoint, "MAX_ARRIVING", 0)
    assert await place.ask("echo", data=bytes(500_000)) == [{"data": bytes(500_000)}]
    assert place.relay.connections == 1
    await place.sender.aclose()
    stranger = make_sender(place.telemetry)
    with pytest.raises(LostPeer):
        async with stranger.stream(place.address, "echo", {"data": bytes(500_000)}, seconds=SECONDS, max_bytes=1):
            pass
    assert place.rejected(HopReason.OVERLOADED) == 1
    await stranger.aclose()


async def test_another_server_that_hosts_the_application_streams_too(runtime: Path) -> None:
    app = make_app(seal_keys=KEY, replica_url="http://127.0.0.1:8080")
    Handlers().register(app)
    receiver = Process(Role.REPLICA, app._services.waiting.boot)
    head = Head(Process(Role.WORKER, b"w" * 16), receiver, os.urandom(16), int(time.time() * 1000))
    sealer = Sealer(KeyRing.parse(KEY), os.urandom)
    url = "http://127.0.0.1:8080"
    message = HopSealer(sealer, "tests", url).seal_stream_request(head, HopContent("notes", {"count": 3}))
    answer = await Client(app).send([message], (HOST, (b"content-type", STREAM_TYPE)), path=HOP_PATH)
    assert (answer.status, answer.headers["content-type"]) == (200, STREAM_TYPE.decode())
    frames = FrameReader("tests", url, head, max_bytes=MAX_BYTES)
    frames.feed(answer.body)
    bodies = [frames.next_body(sealer) for _ in range(4)]
    assert [body and body.get("note") for body in bodies] == [0, 1, 2, None]
    assert frames.is_complete


async def test_a_neighbour_that_was_killed_cannot_have_acted(runtime: Path) -> None:
    async with relaying() as relay, placed(relay) as place:
        keys = make_keys()
        boot = b"d" * 16
        folder = runtime / f"sealed-gateway-{keys.folder_names[0]}"
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(folder / boot.hex()))
        place.sender = make_sender(place.telemetry, neighbours=LocalNeighbours(keys, b"m" * 16, max_bytes=1))
        assert not (await place.lost("echo", ReplicaAddress("", boot))).may_have_acted


def test_workers_can_send_without_anything_that_serves() -> None:
    code = (
        "import sys, gateway.tokens.stream_sender;"
        "assert not {'gateway.web', 'gateway.http', 'gateway.wires', 'gateway.admission'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
