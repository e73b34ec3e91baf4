"""Answers go to the call that waits for them, here or in another replica, and what goes nowhere is counted."""

from __future__ import annotations

import asyncio
import itertools
import math
import os
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gateway.admission.bodies import EXTRA_BYTES, BodyBudget
from gateway.calls.authority import Authority
from gateway.errors import HopReason, InsufficientScope, NotDelivered, RejectReason, TooManyBodyBytes
from gateway.sealing.keyring import KeyRing
from gateway.sealing.principal import Principal
from gateway.sealing.request_id import CallAddress
from gateway.tokens.hop_messages import Hops, NoReply
from gateway.tokens.key_holder import KeyHolder
from gateway.tokens.request_ids import ReplicaAddress
from gateway.wires.broadcasts import Broadcasts
from gateway.wires.legacy.answer_delivery import ANSWER, UNDELIVERED, Deliveries
from gateway.wires.legacy.pending_answers import Undelivered, WaitingCalls
from loadtest.cluster import new_key
from tests.authorities import authorities, nothing
from tests.neighbours import Beside
from tests.wires.legacy.holding import room

HERE = ReplicaAddress("http://here", b"h" * 16)
ELSEWHERE = ReplicaAddress("http://elsewhere", b"e" * 16)
NOWHERE = ReplicaAddress("http://nowhere", b"n" * 16)
CALL = b"c" * 16
ANSWER_BODY: dict[str, Any] = {"jsonrpc": "2.0", "id": "s1.", "result": {"action": "accept"}}
ENCODED = msgspec.json.encode(ANSWER_BODY)
KEY = new_key()
ADA = Principal("https://issuer.example", "ada", "editor")
AUTHORITY = Authority(ADA, frozenset({"read", "admin"}), 1_800_000_030.5, b"k" * 32, b"s" * 16)
NOBODY = Authority(None, frozenset(), math.inf)
PACKED: dict[str, Any] = {"principal": None, "scopes": [], "ends_at": math.inf, "key": b"", "session": b""}
NOW = 1_800_000_000.0


class Noted:
    """The counters of a process."""

    def __init__(self) -> None:
        self.refused: list[HopReason] = []
        self.sent: list[bool] = []

    def hop_refused(self, reason: HopReason) -> None:
        self.refused.append(reason)

    def hop_sent(self, *, answered: bool) -> None:
        self.sent.append(answered)


class Network:
    """Processes by their URLs, and what went between them. Those in `host` also reach each other without a URL."""

    def __init__(self) -> None:
        self.takes: dict[str, Callable[[bytes], bytes | None]] = {}
        self.messages: list[tuple[str, bytes]] = []
        self.host = Beside()

    async def post(self, url: str, message: bytes) -> bytes:
        self.messages.append((url, message))
        take = self.takes.get(url)
        reply = None if take is None else take(message)
        if reply is None:
            raise NoReply(f"no process answers at {url}")
        return reply


class Waiting(WaitingCalls):
    """Calls that wait, which note by whose authority they are answered."""

    def __init__(self, boot: bytes) -> None:
        super().__init__(boot, lambda size: b"c" * size, authorities(), max_bytes=100_000)
        self.answered_by: list[Authority] = []
        self.refusal: InsufficientScope | None = None

    def deliver(self, boot: bytes, call_id: bytes, key: str, body: bytes, authority: Authority) -> bool:
        self.answered_by.append(authority)
        if self.refusal is not None:
            raise self.refusal
        return super().deliver(boot, call_id, key, body, authority)


class Reports(Broadcasts):
    """Hints that are noted instead of sent."""

    sent: list[tuple[str, str, object]]

    def send(self, kind: str, text: str, caller: Hashable = None) -> None:
        self.sent = [*getattr(self, "sent", []), (kind, text, caller)]


class Process:
    """A process with calls that wait, in a network.

    Attributes:
        rejected: why answers were not delivered.
        why: the same in words, for those that did not reach their process.
        broadcasts: keep the hints that it sent about them.
    """

    def __init__(self, network: Network, replica: ReplicaAddress, *, key: str = KEY) -> None:
        self.waiting = Waiting(replica.boot)
        self.rejected: list[RejectReason] = []
        self.why: list[str] = []
        self.noted = Noted()
        telemetry: Any = self.noted
        addresses: Any = self
        self.keys = KeyHolder(KeyRing.parse(key), "tests", clock=lambda: NOW, random_bytes=os.urandom)
        self.hops = Hops(
            self.keys,
            replica,
            post=network.post,
            neighbours=network.host,
            telemetry=telemetry,
            max_bytes=100_000,
        )
        self.broadcasts = Reports(self.hops, [], telemetry)
        self._deliveries = Deliveries(
            self.waiting, replica, addresses, self.hops, self.broadcasts, max_json_depth=20, max_json_values=1000
        )
        network.takes[replica.url] = self.hops.take

    def report(self, report: str) -> None:
        """Hear that an answer was not delivered."""
        self.hops._handlers["hints"]({UNDELIVERED: [report]})

    def reject(self, reason: RejectReason) -> None:
        self.rejected.append(reason)

    def undelivered(self, why: str, _fields: object) -> None:
        self.rejected.append(RejectReason.GONE)
        self.why.append(why)

    async def deliver(
        self,
        replica: ReplicaAddress,
        body: dict[str, Any] | None = None,
        authority: Authority = NOBODY,
        key: str = "key",
    ) -> None:
        body = ANSWER_BODY if body is None else body
        address = CallAddress(replica.url, replica.boot, CALL, key, 0.0)
        await self._deliveries.deliver(address, msgspec.json.encode(body), authority)


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def here(network: Network) -> Process:
    return Process(network, HERE)


@pytest.fixture
def elsewhere(network: Network) -> Process:
    return Process(network, ELSEWHERE)


async def test_an_answer_for_this_process_is_delivered_once(here: Process, network: Network) -> None:
    with here.waiting.open(NOBODY, nothing, room()) as call:
        call.expect(["key"])
        await here.deliver(HERE)
        assert await call.answers() == {"key": ENCODED}
        await here.deliver(HERE)
    assert (network.messages, here.rejected) == ([], [RejectReason.LATE])


@pytest.mark.parametrize(
    "answer",
    [
        {
            "result": {
                "action": "accept",
                "content": {"text": "ä\u2028", "numbers": [2**63, 1e300, -0.0, 1.0], "n": None},
            }
        },
        {"error": {"code": -1, "message": "no"}},
    ],
    ids=["result", "error"],
)
async def test_an_answer_for_another_replica_is_delivered_there_once(
    here: Process, elsewhere: Process, network: Network, answer: dict[str, Any]
) -> None:
    body = {"jsonrpc": "2.0", "id": "s1.", **answer}
    with elsewhere.waiting.open(NOBODY, nothing, room()) as call:
        call.expect(["key"])
        await here.deliver(ELSEWHERE, body)
        assert await call.answers() == {"key": msgspec.json.encode(body)}
        assert (here.rejected, elsewhere.rejected) == ([], [])
        await here.deliver(ELSEWHERE, body)
    assert (here.rejected, elsewhere.rejected) == ([], [RejectReason.LATE])
    assert here.noted.sent == [True, True]
    assert [url for url, _ in network.messages] == [ELSEWHERE.url] * 2
    assert not any(b"accept" in message for _, message in network.messages)


async def test_an_answer_that_there_is_no_room_for_elsewhere_ends_its_call_and_is_not_reported_as_lost(
    here: Process, elsewhere: Process
) -> None:
    budget = BodyBudget(0, 2 * EXTRA_BYTES)
    with budget.hold("ada") as full, budget.hold("ada") as held, elsewhere.waiting.open(NOBODY, nothing, held) as call:
        full.grow(budget.share)
        full.keep(EXTRA_BYTES)
        call.expect(["key", "other"])
        await here.deliver(ELSEWHERE)
        with pytest.raises(TooManyBodyBytes):
            await call.answers()
    assert (here.rejected, elsewhere.rejected) == ([], [])


@pytest.mark.parametrize("authority", [AUTHORITY, NOBODY], ids=["user", "anonymous"])
async def test_the_replica_that_waits_learns_by_whose_authority_it_is_answered(
    here: Process, elsewhere: Process, authority: Authority
) -> None:
    await here.deliver(ELSEWHERE, authority=authority)
    await here.deliver(HERE, authority=authority)
    assert here.waiting.answered_by == elsewhere.waiting.answered_by == [authority]


async def test_the_replica_that_waits_learns_the_scopes_and_claims_of_the_caller(
    here: Process, elsewhere: Process
) -> None:
    held = ADA.holding(scopes=["read", "admin"], claims={"tenant": "å", "groups": [1, None]})
    await here.deliver(ELSEWHERE, authority=replace(AUTHORITY, principal=held))
    (authority,) = elsewhere.waiting.answered_by
    assert authority.principal is not None
    assert authority.principal.scopes == {"read", "admin"}
    assert authority.principal.claims == {"tenant": "å", "groups": [1, None]}


@pytest.mark.parametrize("more", [{}, {"claims": None}, {"claims": {"tenant": "a"}}, {"claims": "{}", "later": 1}])
async def test_an_answer_from_a_replica_of_another_release_is_taken(
    here: Process, elsewhere: Process, more: dict[str, Any]
) -> None:
    packed = {**PACKED, "principal": ["https://issuer.example", "ada", "editor"], "scopes": ["read"], **more}
    message = {"call": CALL, "key": "key", "response": ENCODED, "authority": packed}
    assert await here.hops.ask(ELSEWHERE, ANSWER, message) == {"outcome": "late"}
    (authority,) = elsewhere.waiting.answered_by
    assert authority.principal is not None
    assert authority.principal == ADA
    assert not authority.principal.claims
    assert authority.principal.scopes == {"read"}


async def test_an_answer_that_is_refused_elsewhere_is_refused_as_it_is_here(here: Process, elsewhere: Process) -> None:
    for process, replica in ((here, HERE), (elsewhere, ELSEWHERE)):
        process.waiting.refusal = InsufficientScope(["write", "admin"], "This takes the session in which it began")
        with pytest.raises(InsufficientScope, match="This takes the session in which it began") as caught:
            await here.deliver(replica, authority=AUTHORITY)
        assert caught.value.required == {"write", "admin"}
    assert (here.rejected, elsewhere.rejected) == ([], [])


async def lose(here: Process, replica: ReplicaAddress) -> None:
    """Send an answer that is not delivered."""
    with pytest.raises(NotDelivered):
        await here.deliver(replica)


async def test_an_answer_that_no_replica_takes_is_refused(here: Process) -> None:
    await lose(here, NOWHERE)
    assert (here.rejected, here.noted.sent) == ([RejectReason.GONE], [False])
    assert here.why == ["no process answers at http://nowhere; if its replica runs, correct its GATEWAY_REPLICA_URL"]


@pytest.mark.parametrize("url", ["", HERE.url])
async def test_an_answer_for_a_process_that_no_url_leads_to_is_refused_with_the_cure(
    here: Process, network: Network, url: str
) -> None:
    await lose(here, ReplicaAddress(url, ELSEWHERE.boot))
    assert (network.messages, here.rejected) == ([], [RejectReason.GONE])
    assert "GATEWAY_REPLICA_URL" in here.why[0]


async def test_an_answer_is_refused_if_another_process_is_at_the_url_now(here: Process, network: Network) -> None:
    other = Process(network, ReplicaAddress(ELSEWHERE.url, b"o" * 16))
    with other.waiting.open(NOBODY, nothing, room()) as call:
        call.expect(["key"])
        await lose(here, ELSEWHERE)
        assert other.noted.refused == [HopReason.OTHER_RECEIVER]
    assert (here.rejected, other.rejected) == ([RejectReason.GONE], [])


@pytest.mark.parametrize("url", ["", HERE.url, ELSEWHERE.url])
async def test_a_process_of_this_host_is_reached_whatever_its_url(here: Process, network: Network, url: str) -> None:
    beside = Process(Network(), ReplicaAddress(url, b"b" * 16))
    network.host.takes[b"b" * 16] = beside.hops.take
    with beside.waiting.open(NOBODY, nothing, room()) as call:
        call.expect(["key"])
        await here.deliver(ReplicaAddress(url, b"b" * 16))
        assert await call.answers() == {"key": ENCODED}
    assert (network.messages, here.rejected) == ([], [])


async def test_a_process_passes_on_what_is_for_another_one_at_its_url(
    here: Process, elsewhere: Process, network: Network
) -> None:
    twin = Process(Network(), ReplicaAddress(ELSEWHERE.url, b"t" * 16))
    await lose(here, ReplicaAddress(ELSEWHERE.url, b"t" * 16))
    ((_, message),) = network.messages
    network.host.takes[b"t" * 16] = twin.hops.take
    with twin.waiting.open(NOBODY, nothing, room()) as call:
        call.expect(["key"])
        assert await elsewhere.hops.receive(message)
        assert await call.answers() == {"key": ENCODED}
    assert await elsewhere.hops.receive(message) is None, "a message is taken once"
    assert twin.noted.refused == [HopReason.REPLAYED]


async def test_only_messages_that_open_are_passed_on(elsewhere: Process, network: Network) -> None:
    passed: list[bytes] = []

    def take(message: bytes) -> bytes:
        passed.append(message)
        return b"reply"

    for stranger in (Process(network, HERE, key=new_key()), Process(network, HERE)):
        await lose(stranger, ReplicaAddress("http://lost", b"t" * 16))
    network.host.takes[b"t" * 16] = take
    for _, message in network.messages:
        assert await elsewhere.hops.receive(message) is None
        assert await elsewhere.hops.receive(message[:30]) is None
    assert passed == []


async def test_an_answer_that_is_not_delivered_ends_the_call_that_waits_for_it(
    here: Process, elsewhere: Process, network: Network
) -> None:
    network.takes.clear()
    with elsewhere.waiting.open(AUTHORITY, nothing, room()) as call:
        call.expect(["a key", "other"])
        with pytest.raises(NotDelivered):
            await here.deliver(ELSEWHERE, authority=AUTHORITY, key="a key")
        ((kind, report, caller),) = here.broadcasts.sent
        assert (kind, caller) == (UNDELIVERED, ADA)
        elsewhere.report(report)
        with pytest.raises(Undelivered):
            await call.answers()


@pytest.mark.parametrize(
    "change",
    [
        lambda report: report.replace(ELSEWHERE.boot.hex(), HERE.boot.hex()),
        lambda report: report.replace(CALL.hex(), (b"d" * 16).hex()),
        lambda report: report.replace(AUTHORITY.session.hex(), (b"t" * 16).hex()),
        lambda report: report.replace(AUTHORITY.session.hex(), ""),
        lambda report: report.replace("key", "other"),
        lambda report: report.replace(CALL.hex(), "no hex"),
        lambda _: ELSEWHERE.boot.hex(),
        lambda _: "",
    ],
    ids=["process", "call", "session", "no session", "key", "garbage", "short", "empty"],
)
async def test_a_report_about_anything_else_ends_nothing(elsewhere: Process, change: Callable[[str], str]) -> None:
    report = f"{ELSEWHERE.boot.hex()} {CALL.hex()} {AUTHORITY.session.hex()} key"
    with elsewhere.waiting.open(AUTHORITY, nothing, room()) as call:
        call.expect(["key", "other"])
        call.take("other", b"{}", AUTHORITY)
        answers = asyncio.create_task(call.answers())
        await asyncio.sleep(0)
        elsewhere.report(change(report))
        await asyncio.sleep(0)
        assert not answers.done()
        call.take("key", b"{}", AUTHORITY)
        assert await answers == {"key": b"{}", "other": b"{}"}


async def test_a_reply_counts_only_if_the_process_that_was_asked_has_sealed_it(
    here: Process, elsewhere: Process, network: Network
) -> None:
    stranger = Process(Network(), ELSEWHERE, key=new_key())
    twin = Process(Network(), ReplicaAddress(ELSEWHERE.url, b"o" * 16))
    earlier: list[bytes] = []

    def remembers(message: bytes) -> bytes | None:
        reply = elsewhere.hops.take(message)
        assert reply is not None
        earlier.append(reply)
        return earlier[0]

    replies: list[Callable[[bytes], bytes | None]] = [
        lambda message: message,
        lambda _: b"",
        lambda _: b"{}",
        stranger.hops.take,
        twin.hops.take,
        lambda message: (elsewhere.hops.take(message) or b"")[:-1],
        lambda message: (elsewhere.hops.take(message) or b"") + bytes(70_000),
    ]
    for reply in replies:
        network.takes[ELSEWHERE.url] = reply
        await lose(here, ELSEWHERE)
    assert here.rejected == [RejectReason.GONE] * len(replies)
    network.takes[ELSEWHERE.url] = remembers
    await here.deliver(ELSEWHERE)
    await lose(here, ELSEWHERE)
    assert here.rejected[len(replies) :] == [RejectReason.GONE]


async def test_a_message_is_taken_once(here: Process, elsewhere: Process, network: Network) -> None:
    with elsewhere.waiting.open(NOBODY, nothing, room()) as call:
        call.expect(["key"])
        await here.deliver(ELSEWHERE)
        await call.answers()
        call.expect(["key"])
        ((_, message),) = network.messages
        assert elsewhere.hops.take(message) is None
        assert elsewhere.noted.refused == [HopReason.REPLAYED]
        assert call.expects("key"), "an answer that was replayed has been taken"


@pytest.mark.parametrize(
    "body",
    [
        {"call": "text"},
        {"key": b"key"},
        {"response": "{}"},
        {"response": b"{"},
        {"response": b"[" * 30},
        {"response": b'{"jsonrpc":"2.0","id":1,"method":"ping"}'},
        {"authority": None},
        *({"authority": {**PACKED, name: wrong}} for name, wrong in itertools.product(PACKED, (True, {}, ["a", 1]))),
    ],
    ids=repr,
)
async def test_a_message_that_brings_no_answer_is_refused(
    here: Process, elsewhere: Process, body: dict[str, Any]
) -> None:
    good = {"call": CALL, "key": "key", "response": ENCODED, "authority": PACKED}
    with pytest.raises(NoReply):
        await here.hops.ask(ELSEWHERE, ANSWER, {**good, **body})
    assert elsewhere.noted.refused == [HopReason.MALFORMED]
    assert await here.hops.ask(ELSEWHERE, ANSWER, good) == {"outcome": "late"}


async def test_a_message_of_a_kind_that_nobody_knows_is_refused(here: Process, elsewhere: Process) -> None:
    with pytest.raises(NoReply):
        await here.hops.ask(ELSEWHERE, "later", {})
    assert elsewhere.noted.refused == [HopReason.MALFORMED]


async def test_keys_rotate_between_two_replicas(here: Process, elsewhere: Process) -> None:
    old, new = KEY, new_key()
    for ring_here, ring_elsewhere in ((f"{old},{new}", old), (f"{new},{old}", f"{old},{new}"), (new, f"{new},{old}")):
        for process, ring in ((here, ring_here), (elsewhere, ring_elsewhere)):
            process.keys.replace(KeyRing.parse(ring))
        await here.deliver(ELSEWHERE)
        await elsewhere.deliver(HERE)
    assert here.rejected == elsewhere.rejected == [RejectReason.LATE] * 3
