"""A hint of one replica reaches all others once, sealed, and even many hints cost little."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from gateway.errors import HopReason
from gateway.observability.metrics import Telemetry
from gateway.sealing.keyring import KeyRing
from gateway.tokens.hop_messages import Hops, max_message_bytes
from gateway.tokens.key_holder import KeyHolder
from gateway.tokens.request_ids import ReplicaAddress
from gateway.wires import broadcasts as module
from gateway.wires.broadcasts import (
    CANCELLED_REQUEST,
    CHANGED_TOPIC,
    MAX_BYTES,
    MAX_OF_ONE,
    MAX_UNDER_WAY,
    MAX_WAITING,
    Broadcasts,
)
from gateway.wires.ports import Carrier
from loadtest.cluster import new_key
from tests.neighbours import Beside
from tests.waiting import until

KEY = new_key()
NOW = 1_800_000_000.0
SMALLEST_BODY_BYTES = 256

Take = Callable[[bytes], object]


class Air:
    """Delivers messages to all listeners, including the sender, as the store does. Each waits for `hold`, if set."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.works = True
        self.hold: asyncio.Event | None = None
        self._listeners: list[Take] = []

    async def send(self, seal: Callable[[], bytes]) -> bool:
        message = seal()
        self.messages.append(message)
        if self.hold is not None:
            await self.hold.wait()
        if self.works:
            for take in self._listeners:
                take(message)
        return self.works

    @contextlib.asynccontextmanager
    async def listening(self, take: Take) -> AsyncIterator[None]:
        self._listeners.append(take)
        yield


class Process:
    """A replica that records kind and text of each hint it receives."""

    def __init__(self, boot: bytes, *carriers: Carrier, key: str = KEY) -> None:
        self.telemetry = Telemetry()
        self.hops = Hops(
            KeyHolder(KeyRing.parse(key), "tests", clock=lambda: NOW, random_bytes=os.urandom),
            ReplicaAddress(f"http://{boot.decode()}", boot * 16),
            post=_nowhere,
            neighbours=Beside(),
            telemetry=self.telemetry,
            max_bytes=max_message_bytes(SMALLEST_BODY_BYTES),
        )
        self.broadcasts = Broadcasts(self.hops, carriers, self.telemetry)
        self.heard: list[tuple[str, str]] = []
        for kind in (CANCELLED_REQUEST, CHANGED_TOPIC):
            self.broadcasts.forward_to(kind, lambda text, kind=kind: self.heard.append((kind, text)))  # type: ignore[misc]

    def counted(self, name: str, **labels: str) -> float:
        return self.telemetry.registry.get_sample_value(name, labels) or 0.0


async def _nowhere(_url: str, _message: bytes) -> bytes:
    raise AssertionError


@pytest.fixture
def air() -> Air:
    return Air()


@pytest.fixture
def here(air: Air) -> Process:
    return Process(b"h", air)


@pytest.fixture
def there(air: Air) -> Process:
    return Process(b"t", air)


@pytest.fixture(autouse=True)
def _short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.01)


async def test_a_hint_is_heard_by_all_others_and_not_by_its_teller(here: Process, there: Process, air: Air) -> None:
    third = Process(b"3", air)
    async with here.broadcasts.running(), there.broadcasts.running(), third.broadcasts.running():
        here.broadcasts.send(CANCELLED_REQUEST, "a-request")
        await until(lambda: there.heard and third.heard)
    assert there.heard == third.heard == [(CANCELLED_REQUEST, "a-request")]
    assert here.heard == []
    assert not any(b"a-request" in message or b"cancel" in message for message in air.messages)


async def test_hints_come_from_any_thread_and_travel_together(here: Process, there: Process, air: Air) -> None:
    async with here.broadcasts.running(), there.broadcasts.running():

        def tell_much() -> None:
            for number in range(50):
                here.broadcasts.send(CHANGED_TOPIC, f"t{number}")

        thread = threading.Thread(target=tell_much)
        thread.start()
        await asyncio.to_thread(thread.join)
        here.broadcasts.send(CHANGED_TOPIC, "t0")
        await until(lambda: len(there.heard) >= 50)
    assert sorted(set(there.heard)) == sorted((CHANGED_TOPIC, f"t{n}") for n in range(50))
    assert len(air.messages) < 25


async def test_a_hint_that_cannot_be_delivered_is_dropped(air: Air) -> None:
    alone = Process(b"a")
    async with alone.broadcasts.running():
        alone.broadcasts.send(CHANGED_TOPIC, "tools")
    stopped = Process(b"s", air)
    stopped.broadcasts.send(CHANGED_TOPIC, "tools")
    async with stopped.broadcasts.running():
        stopped.broadcasts.send(CHANGED_TOPIC, "prompts")
        await until(lambda: air.messages)
    stopped.broadcasts.send(CHANGED_TOPIC, "resources")
    other = Process(b"o")
    assert other.hops.take(air.messages[0]) == b""
    assert other.heard == [(CHANGED_TOPIC, "prompts")]


async def test_the_next_carrier_brings_what_the_first_cannot(air: Air) -> None:
    broken = Air()
    broken.works = False
    teller, listener = Process(b"h", broken, air), Process(b"t", broken, air)
    async with teller.broadcasts.running(), listener.broadcasts.running():
        teller.broadcasts.send(CHANGED_TOPIC, "tools")
        await until(lambda: listener.heard)
        assert teller.counted("gateway_broadcasts_total", result="delivered") == 1
        air.works = False
        teller.broadcasts.send(CHANGED_TOPIC, "prompts")
        await until(lambda: teller.counted("gateway_broadcasts_total", result="failed"))
    assert broken.messages[0] != air.messages[0]
    assert listener.counted("gateway_hop_messages_refused_total", reason="replayed") == 0


async def test_a_flood_of_one_caller_leaves_room_for_others_and_ends_somewhere(here: Process, there: Process) -> None:
    async with here.broadcasts.running(), there.broadcasts.running():
        for number in range(3 * MAX_OF_ONE):
            here.broadcasts.send(CANCELLED_REQUEST, f"flood-{number}", "one")
        for other in range(2 * MAX_WAITING):
            here.broadcasts.send(CANCELLED_REQUEST, f"other-{other}", f"caller-{other}")
        await until(lambda: there.heard)
    texts = [text for _, text in there.heard]
    assert sum(text.startswith("flood") for text in texts) == MAX_OF_ONE
    assert len(texts) == MAX_WAITING
    dropped = 3 * MAX_OF_ONE + 2 * MAX_WAITING - MAX_WAITING
    assert here.counted("gateway_broadcast_hints_dropped_total") == dropped


async def test_a_flood_of_callers_without_a_name_leaves_room_for_changes(here: Process, there: Process) -> None:
    async with here.broadcasts.running(), there.broadcasts.running():
        for number in range(3 * MAX_OF_ONE):
            here.broadcasts.send(CANCELLED_REQUEST, f"flood-{number}", None)
        here.broadcasts.send(CHANGED_TOPIC, "tools")
        await until(lambda: there.heard)
    assert len(there.heard) == MAX_OF_ONE + 1
    assert there.heard[-1] == (CHANGED_TOPIC, "tools")


async def test_the_most_that_waits_fits_a_message_to_the_smallest_replica(here: Process, there: Process) -> None:
    long = [f"{number:04}" + "x" * (MAX_BYTES - 4) for number in range(100)]
    digests = [f"{number:064}" for number in range(MAX_WAITING)]
    async with here.broadcasts.running(), there.broadcasts.running():
        for texts in (long, digests):
            there.heard.clear()
            for number, text in enumerate(texts):
                here.broadcasts.send(CHANGED_TOPIC, text, number)
            await until(lambda: there.heard)
            assert len(there.heard) > 10
    assert there.counted("gateway_hop_messages_refused_total", reason="too_large") == 0


@pytest.mark.parametrize("text", ["x" * (MAX_BYTES + 1), "ä" * (MAX_BYTES // 2 + 1), "\ud800"], ids=len)
async def test_a_hint_that_no_message_carries_harms_no_other(here: Process, there: Process, text: str) -> None:
    async with here.broadcasts.running(), there.broadcasts.running():
        here.broadcasts.send(CHANGED_TOPIC, text)
        here.broadcasts.send(CHANGED_TOPIC, "tools")
        await until(lambda: there.heard)
    assert there.heard == [(CHANGED_TOPIC, "tools")]
    assert here.counted("gateway_broadcast_hints_dropped_total") == 1


async def test_of_messages_that_nobody_takes_few_are_under_way(here: Process, there: Process, air: Air) -> None:
    air.hold = asyncio.Event()
    async with here.broadcasts.running(), there.broadcasts.running():
        for number in range(3 * MAX_UNDER_WAY):
            here.broadcasts.send(CHANGED_TOPIC, f"t{number}")
            await asyncio.sleep(2 * module.PAUSE_SECONDS)
        assert len(air.messages) == MAX_UNDER_WAY
        air.hold.set()
        await until(lambda: len(there.heard) == 3 * MAX_UNDER_WAY)


@pytest.mark.parametrize(
    ("body", "heard"),
    [
        ({}, []),
        ({"later": ["x"], "changed": ["tools"]}, [(CHANGED_TOPIC, "tools")]),
        ({"changed": "tools"}, None),
        ({"changed": [1]}, None),
        ({"cancelled": {"a": 1}}, None),
    ],
    ids=repr,
)
def test_hints_of_another_release_change_nothing_and_nonsense_is_refused(
    here: Process, there: Process, body: dict[str, Any], heard: list[tuple[str, str]] | None
) -> None:
    reply = there.hops.take(here.hops.seal_for_everyone("hints", body))
    assert reply == (None if heard is None else b"")
    assert there.heard == (heard or [])
    assert there.counted("gateway_hop_messages_refused_total", reason=HopReason.MALFORMED) == float(heard is None)


def test_nobody_without_the_keys_tells_anything(there: Process) -> None:
    stranger = Process(b"x", key=new_key())
    assert there.hops.take(stranger.hops.seal_for_everyone("hints", {"changed": ["tools"]})) is None
    assert there.heard == []


def test_a_message_to_everyone_counts_once_at_each(here: Process, there: Process) -> None:
    message = here.hops.seal_for_everyone("hints", {"changed": ["tools"]})
    third = Process(b"3")
    assert [process.hops.take(message) for process in (there, third, there)] == [b"", b"", None]
    assert there.heard == third.heard == [(CHANGED_TOPIC, "tools")]
    assert there.counted("gateway_hop_messages_refused_total", reason=HopReason.REPLAYED) == 1


def test_a_process_that_hears_itself_does_nothing(here: Process) -> None:
    assert here.hops.take(here.hops.seal_for_everyone("hints", {"changed": ["tools"]})) == b""
    assert here.heard == []
