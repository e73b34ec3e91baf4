"""The client as carrier: journals out and in, with a clock and keys of the test's own."""

from __future__ import annotations

import logging
from os import urandom
from typing import Any

import pytest

from gateway.engine.journal import Journal
from gateway.errors import CannotContinue, InvalidRequestState, RejectReason
from gateway.observability.metrics import Telemetry
from gateway.sealing.keyring import KeyRing
from gateway.sealing.state import seal_state
from gateway.tokens.key_holder import KeyHolder
from gateway.tokens.request_state import FlowLimits, SealedCarrier

BINDING = b"a binding"
TTL, FLOW_MAX, MAX_BYTES = 100.0, 1000.0, 2000


class World:
    """A carrier, and everything it depends on."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.telemetry = Telemetry()
        self.keys = KeyHolder(KeyRing.parse("ab" * 32), "tests", clock=lambda: self.now, random_bytes=urandom)
        limits = FlowLimits(state_ttl_seconds=TTL, flow_max_seconds=FLOW_MAX, state_max_bytes=MAX_BYTES)
        self.carrier = SealedCarrier(self.keys, limits, self.telemetry)

    def count(self, name: str, **labels: str) -> float:
        return self.telemetry.registry.get_sample_value(name, labels) or 0.0

    def seal(self, journal: Journal, binding: bytes, ttl: float | None = None) -> str:
        return self.carrier.seal(self.keys.current, journal, binding, ttl)

    def open(self, state: Any, binding: bytes) -> Journal:
        return self.carrier.open(self.keys.current, state, binding)

    def opens(self, state: str) -> bool:
        try:
            self.open(state, BINDING)
        except InvalidRequestState:
            return False
        return True


@pytest.fixture
def world() -> World:
    return World()


def test_a_journal_comes_back_as_it_went(world: World) -> None:
    journal = world.carrier.begin()
    journal.record("who", b"digest", {"result": {"action": "accept", "content": {"name": "Ada"}}})
    journal.steps["sum"] = [1, 2.5, None, {"text": "é"}, 2**80]
    assert world.open(world.seal(journal, BINDING), BINDING) == journal


def test_a_flow_begins_now_and_has_a_deadline(world: World) -> None:
    journal = world.carrier.begin()
    assert (journal.started_ms, journal.deadline_ms) == (1_000_000_000, 1_001_000_000)
    assert journal.legs == 0
    assert world.carrier.begin().flow_id != journal.flow_id


@pytest.mark.parametrize(
    ("age", "ttl", "lifetime"),
    [
        (0.0, None, TTL),
        (0.0, 7.0, 7.0),
        (0.0, 5000.0, FLOW_MAX),
        (950.0, None, 50.0),
        (950.0, 7.0, 7.0),
        (999.0, None, 1.0),
    ],
)
def test_a_state_lives_as_long_as_it_may_but_never_longer_than_its_flow(
    world: World, age: float, ttl: float | None, lifetime: float
) -> None:
    journal = world.carrier.begin()
    world.now += age
    state = world.seal(journal, BINDING, ttl)
    world.now += lifetime - 0.001
    assert world.opens(state)
    world.now += 0.001
    assert not world.opens(state)


@pytest.mark.parametrize("late", [0.0, 0.001, 1e6])
def test_a_flow_at_its_deadline_cannot_continue_and_says_why(world: World, late: float) -> None:
    journal = world.carrier.begin()
    world.now += FLOW_MAX + late
    with pytest.raises(CannotContinue, match="longer than the server allows; start it again"):
        world.seal(journal, BINDING)
    assert world.count("gateway_states_sealed_total", key_id=world.keys.current.key_id.hex()) == 0


def test_no_leg_can_move_the_deadline_of_its_flow(world: World) -> None:
    """Each leg starts a new time to live, but no new deadline."""
    state = world.seal(world.carrier.begin(), BINDING)
    for _leg in range(11):
        world.now += 90
        state = world.seal(world.open(state, BINDING), BINDING)
    world.now += 9.999
    assert world.opens(state)
    world.now += 0.001
    assert not world.opens(state)


def test_a_journal_over_the_cap_cannot_continue_and_says_why(world: World) -> None:
    journal = world.carrier.begin()
    journal.steps["loot"] = "x" * 2000
    with pytest.raises(CannotContinue, match=r"\d+ bytes; the limit is 2000"):
        world.seal(journal, BINDING)


def test_a_state_may_be_exactly_as_long_as_the_cap(world: World) -> None:
    journal = world.carrier.begin()
    longest = 0
    for size in range(2000):
        journal.steps["loot"] = "x" * size
        try:
            state = world.seal(journal, BINDING)
        except CannotContinue:
            break
        longest = len(state)
    assert MAX_BYTES - 2 <= longest <= MAX_BYTES
    assert world.opens(state)


@pytest.mark.parametrize("state", ["", 0, False, [], {}, "s1.", "s1.AAAA", 1.5, "x" * 5000, b"s1."])
def test_values_that_do_not_open_are_rejected_alike(world: World, state: Any) -> None:
    with pytest.raises(InvalidRequestState) as caught:
        world.open(state, BINDING)
    assert caught.value.message == "Invalid or expired requestState"
    assert caught.value.data == {"reason": "invalid_request_state"}


def test_the_reason_of_a_rejection_goes_to_the_log_and_the_counter(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    state = world.seal(world.carrier.begin(), BINDING)
    with pytest.raises(InvalidRequestState) as caught:
        world.open(state, b"another binding")
    assert caught.value.reason is RejectReason.NOT_AUTHENTIC
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.WARNING, "requestState rejected")
    assert vars(record)["reason"] == "not_authentic"
    assert state not in str(vars(record))
    assert world.count("gateway_state_rejections_total", reason="not_authentic") == 1
    assert world.count("gateway_states_opened_total", key_id=world.keys.current.key_id.hex()) == 0


@pytest.mark.parametrize("changes", [{"seed": "text"}, {"legs": 1.0}, {"flow": None}, {"pending": {"who": "text"}}])
def test_an_authentic_state_that_holds_no_journal_is_rejected(world: World, changes: dict[str, Any]) -> None:
    rest = {**world.carrier.begin().to_map(), **changes}
    state = seal_state(
        world.keys.current, rest, aad=BINDING, now=world.now, expires_at=world.now + 1, max_bytes=MAX_BYTES
    )
    with pytest.raises(InvalidRequestState) as caught:
        world.open(state, BINDING)
    assert caught.value.reason is RejectReason.MALFORMED


def test_fields_of_a_newer_release_in_a_journal_survive_this_one(world: World) -> None:
    rest = {**world.carrier.begin().to_map(), "novelty": {"of": ["a", "newer", "release"]}}
    state = world.seal(Journal.from_map(rest), BINDING)
    journal = world.open(state, BINDING)
    again = world.open(world.seal(journal, BINDING), BINDING)
    assert again.to_map()["novelty"] == {"of": ["a", "newer", "release"]}


def test_states_are_counted_by_the_key_that_sealed_them(world: World) -> None:
    key_id = world.keys.current.key_id.hex()
    state = world.seal(world.carrier.begin(), BINDING)
    world.open(state, BINDING)
    world.open(state, BINDING)
    assert world.count("gateway_states_sealed_total", key_id=key_id) == 1
    assert world.count("gateway_states_opened_total", key_id=key_id) == 2
    assert world.count("gateway_state_bytes_sum") == len(state)
