"""New requests to holders: each begins at most once, whatever is lost on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from gateway.errors import Overloaded
from gateway.observability.upstream_metrics import UpstreamMetrics
from gateway.sealing.hop import NO_BOOT
from gateway.sealing.hop_frames import StreamReason, StreamRefused
from gateway.tokens.hop_messages import LostPeer
from gateway.tokens.request_ids import ReplicaAddress
from gateway.upstreams.failures import HeldFailure, Reason
from gateway.upstreams.held import holder as sending
from gateway.upstreams.held import holders as finding
from gateway.upstreams.held.actions import HeldLimits
from gateway.upstreams.held.calls import SPENT_SECONDS, HeldCalls, HeldTarget, HeldUpstream
from gateway.upstreams.held.holder import Holder, Outgoing
from gateway.upstreams.held.holders import HELLO, Holders
from gateway.upstreams.held.messages import KIND, RequestMessage, answer_body, read_request
from gateway.upstreams.held.place import HeldPlace
from gateway.upstreams.ports import NOBODY

H0, H1 = "http://h-0", "http://h-1"
CALL = b"c" * 16
RESULT: dict[str, Any] = {"content": []}

Says = Callable[[ReplicaAddress, str], Mapping[str, Any]]


class Answers:
    """The answer to one request, as `AnswerStream` gives it: one body, or what is raised."""

    def __init__(self, says: Says, address: ReplicaAddress, kind: str) -> None:
        self.boot = address.boot
        self._says, self._address, self._kind = says, address, kind

    async def __aenter__(self) -> Answers:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def __aiter__(self) -> Any:
        body = self._says(self._address, self._kind)
        self.boot = body.get("boot", self.boot)
        yield body


class Network:
    """The processes at some URLs: each has a boot id, and says what a test wants to a request."""

    def __init__(self) -> None:
        self.boots = {H0: b"0" * 16, H1: b"1" * 16}
        self.asleep: set[str] = set()
        self.draining: set[str] = set()
        self.outcomes: list[Exception | Mapping[str, Any]] = []
        self.sent: list[tuple[str, bytes]] = []

    def stream(self, replica: ReplicaAddress, kind: str, body: Mapping[str, Any], **_: Any) -> Answers:
        return Answers(self._said, replica, kind)

    def _said(self, address: ReplicaAddress, kind: str) -> Mapping[str, Any]:
        boot = self.boots[address.url]
        if address.url in self.asleep:
            raise LostPeer("silent")
        if address.boot not in {boot, NO_BOOT}:
            raise StreamRefused(StreamReason.OTHER_PROCESS)
        if address.url in self.draining:
            raise StreamRefused(StreamReason.DRAINING)
        if kind == HELLO:
            return {"boot": boot}
        self.sent.append((address.url, address.boot))
        outcome = self.outcomes.pop(0) if self.outcomes else answer_body(RESULT)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    for module in (sending, finding):
        monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(sending, "WAIT_SECONDS", 0.1)
    return Network()


async def begin(network: Network, order: list[str], own_url: str = "", **options: Any) -> Any:
    sender: Any = network
    holder = Holder(sender=sender, holders=Holders([H0, H1], sender, own_url))
    telemetry = UpstreamMetrics(CollectorRegistry())

    async def prepare() -> Outgoing:
        given: Any = {"requester": NOBODY, "seconds": 1, "max_bytes": 1000, **options}
        return Outgoing("stub", {}, CALL, given, telemetry)

    async def here() -> dict[str, Any]:
        return {"here": True}

    return await holder.begin(order, prepare, here)


async def test_a_request_goes_to_the_process_that_said_hello(network: Network) -> None:
    assert await begin(network, [H0]) == RESULT
    assert network.sent == [(H0, network.boots[H0])]


async def test_a_process_uses_its_own_connections_for_its_own_keys(network: Network) -> None:
    assert await begin(network, [H0], own_url=H0) == {"here": True}
    assert network.sent == []


@pytest.mark.parametrize("how", ["asleep", "draining"])
async def test_a_request_waits_for_its_holder_and_is_not_sent(network: Network, how: str) -> None:
    away = getattr(network, how)
    away.add(H0)
    with pytest.raises(Overloaded):
        await begin(network, [H0])
    waiting = asyncio.create_task(begin(network, [H0]))
    await asyncio.sleep(0)
    away.clear()
    assert await waiting == RESULT
    assert len(network.sent) == 1


async def test_a_request_whose_connection_nobody_shares_goes_to_the_next_holder(network: Network) -> None:
    network.asleep.add(H0)
    assert await begin(network, [H0, H1]) == RESULT
    assert [url for url, _ in network.sent] == [H1]


async def test_a_request_that_is_lost_is_sent_once_more_to_the_same_process(network: Network) -> None:
    network.outcomes = [LostPeer("cut")]
    assert await begin(network, [H0]) == RESULT
    assert network.sent == [(H0, network.boots[H0])] * 2


async def test_a_request_that_is_lost_never_begins_in_a_process_that_took_the_place(network: Network) -> None:
    class Restart(LostPeer):
        def __init__(self) -> None:
            network.boots[H0] = b"2" * 16
            super().__init__("cut")

    def said(address: ReplicaAddress, kind: str, ask: Says = network._said) -> Mapping[str, Any]:
        if kind == KIND and network.boots[H0] == address.boot:
            network.sent.append((address.url, address.boot))
            raise Restart
        return ask(address, kind)

    network._said = said  # type: ignore[method-assign]
    with pytest.raises(HeldFailure) as caught:
        await begin(network, [H0])
    assert caught.value.reason is Reason.HOLDER_LOST
    assert caught.value.sent, "it may have acted"
    assert len(network.sent) == 1


async def test_a_request_that_is_lost_twice_may_have_acted(network: Network) -> None:
    network.outcomes = [LostPeer("cut"), LostPeer("cut")]
    with pytest.raises(HeldFailure) as caught:
        await begin(network, [H0, H1])
    assert caught.value.sent
    assert [url for url, _ in network.sent] == [H0, H0], "never to another holder"


async def test_a_request_that_found_no_connection_is_sent_again(network: Network) -> None:
    network.outcomes = [LostPeer("refused", may_have_acted=False)]
    assert await begin(network, [H0]) == RESULT


async def test_the_place_of_a_task_is_kept_before_its_request_is_sent(network: Network) -> None:
    kept: list[tuple[str, int]] = []

    async def keep(place: str) -> None:
        kept.append((place, len(network.sent)))

    await begin(network, [H0], keep_place=keep)
    assert kept == [(HeldPlace(H0, network.boots[H0], CALL, 0).to_text(), 0)]


async def test_a_call_that_is_forgotten_does_not_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = HeldCalls(random_bytes=bytes)
    upstream = HeldUpstream("stub", HeldLimits(1, 1), UpstreamMetrics(CollectorRegistry()))
    target = HeldTarget(b"", "tools/call", "echo", None)
    call = calls.begin(CALL, target, upstream)
    calls.forget(call, is_spent=True)
    with pytest.raises(HeldFailure):
        calls.begin(CALL, target, upstream)
    loop = asyncio.get_running_loop()
    later = loop.time() + SPENT_SECONDS + 1
    monkeypatch.setattr(loop, "time", lambda: later)
    calls.forget(calls.begin(b"d" * 16, target, upstream), is_spent=True)
    calls.begin(CALL, target, upstream)


@pytest.mark.parametrize("place", ["", "h1.x"])
async def test_a_process_that_drains_refuses_only_new_calls(place: str) -> None:
    holder = Holder()
    holder.drain()
    message = RequestMessage("stub", b"", "tools/call", b"{}", CALL, 1.0, 1000, place=place)
    body = {name: getattr(message, name) for name in message.__struct_fields__}

    async def send(_body: Mapping[str, Any]) -> None:
        raise AssertionError

    if place:
        assert (await holder.serve(body, send))["type"] == "failure", "it has no such upstream"
    else:
        with pytest.raises(StreamRefused) as caught:
            await holder.serve(body, send)
        assert caught.value.reason == StreamReason.DRAINING
    with pytest.raises(StreamRefused):
        await holder.serve_hello({}, send)


def test_the_text_of_a_message_has_no_secret() -> None:
    body = {"upstream": "stub", "identity": b"", "method": "tools/call", "params_json": b'{"p": "secret"}'}
    more = {"call": CALL, "seconds": 1.0, "max_bytes": 1, "token": "secret", "headers": {"x": "secret"}}
    assert "secret" not in repr(read_request({**body, **more}))
