"""Legs of relays: what they keep, ask and pass on, with the journal packed between two legs as in production."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.authoring.asyncio_host import AsyncioHost
from gateway.engine.asking import MAX_ASKED
from gateway.engine.driver import run_leg
from gateway.engine.journal import Journal, MalformedJournal
from gateway.engine.leg import MAX_ROUNDS_BEFORE_SHED, MAX_SHEDS, Detaching, Leg
from gateway.engine.outcomes import Completed, Failed, LegTimedOut, NeedsInput, NotKept, Outcome, Shed
from gateway.engine.questions import ELICIT, ROOTS, Answer, Question
from gateway.engine.relaying import RelayFunction, RelayLeg
from gateway.engine.stoppable_leg import LegStopped
from gateway.errors import AuthoringError, CannotContinue, MissingCapability
from gateway.registry.relayed import forwarded_question
from gateway.sealing.packing import pack, unpack
from tests.calls.policies import POLICY

FORM = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
DECLINED: Answer = {"result": {"action": "decline"}}
NO_SCREEN: Answer = {"error": {"code": -1, "message": "no screen"}}


def form(message: str) -> Question:
    return forwarded_question(ELICIT, {"message": message, "requestedSchema": FORM})


def number(value: Any, **more: Any) -> Answer:
    return {"result": {"action": "accept", "content": {"n": value}, **more}}


class Keeper:
    """Notes what it stores; a `broken` one raises."""

    def __init__(self, *, broken: bool = False) -> None:
        self.slots: list[dict[str, Any]] = []
        self.broken = broken

    async def keep_slot(self, slot: dict[str, Any]) -> None:
        if self.broken:
            raise OSError("gone")
        self.slots.append(slot)


class Notices:
    """Notes what it gets."""

    def __init__(self) -> None:
        self.logs: list[Any] = []
        self.reports: list[Any] = []

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        self.reports.append((done, total, message))

    def log(self, level: str, data: Any, logger: str | None) -> None:
        self.logs.append((level, data, logger))


class Call:
    """One call of a relay, leg by leg."""

    def __init__(self, function: RelayFunction, host: AsyncioHost) -> None:
        self.function, self.host = function, host
        self.rest: Any = Journal.begin(now_ms=1_000, flow_max_ms=60_000, random_bytes=bytes).to_map()

    @property
    def journal(self) -> Journal:
        return Journal.from_map(unpack(pack(self.rest)))

    async def leg(
        self,
        answers: Mapping[str, Answer] | None = None,
        *,
        can: Callable[[tuple[str, ...]], bool] = lambda _path: True,
        limited: bool = False,
        may_shed: bool = False,
        **options: Any,
    ) -> Outcome:
        sheds = (lambda: False) if may_shed else None
        leg = Leg(self.journal, answers or {}, self.host, POLICY, supports=can, sheds=sheds, **options)
        outcome = await run_leg(lambda it: self.function(RelayLeg(it)), leg, limited=limited)
        self.rest = leg.journal.to_map()
        return outcome


@pytest.fixture
async def host() -> AsyncIterator[AsyncioHost]:
    made = AsyncioHost(0.05, "replica-1")
    yield made
    made.close()


def asking(*rounds: Mapping[str, Question], passed_on: list[dict[str, Answer]] | None = None) -> RelayFunction:
    """Return a relay of a server that asks these rounds; its result has the answers of each."""

    async def run(leg: RelayLeg) -> dict[str, Any]:
        slot = leg.slot or {"round": 1, "answers": []}
        while slot["round"] <= len(rounds):
            await leg.keep_slot(slot)
            answers = await leg.ask_forwarded(rounds[slot["round"] - 1])
            if passed_on is not None:
                passed_on.append(answers)
            leg.forget_round(slot["round"])
            slot = {"round": slot["round"] + 1, "answers": [*slot["answers"], answers]}
        return {"answers": slot["answers"]}

    return run


def asked(outcome: Outcome) -> list[str]:
    assert isinstance(outcome, NeedsInput), outcome
    return list(outcome.questions)


def message_of(outcome: Outcome, key: str) -> str:
    assert isinstance(outcome, NeedsInput), outcome
    return str(outcome.questions[key].params["message"])


async def test_a_key_that_looks_like_that_of_a_round_is_another_question(host: AsyncioHost) -> None:
    call = Call(asking({"k": form("1?"), "1:k": form("2?")}), host)
    assert asked(await call.leg()) == ["k", "1:k"]
    both = {"1:k": number(2), "k": number(1)}
    assert await call.leg(both) == Completed({"answers": [both]})


async def test_a_server_may_ask_under_one_key_in_every_round(host: AsyncioHost) -> None:
    call = Call(asking({"k": form("1?")}, {"k": form("1?")}), host)
    assert asked(await call.leg()) == ["k"]
    assert asked(await call.leg({"k": number(1)})) == ["k"]
    assert await call.leg({"k": number(2)}) == Completed({"answers": [{"k": number(1)}, {"k": number(2)}]})


async def test_declines_errors_unknown_members_and_meta_survive(host: AsyncioHost) -> None:
    call = Call(asking({"a": form("a"), "b": form("b"), "c": form("c"), "d": forwarded_question(ROOTS, {})}), host)
    await call.leg()
    told = number(1, new=[1], _meta={"com.example/x": {}})
    roots: Answer = {"result": {"roots": [], "x": None}}
    answers = {"a": DECLINED, "b": NO_SCREEN, "c": told, "d": roots}
    assert await call.leg(answers) == Completed({"answers": [answers]})


async def test_only_what_has_no_answer_yet_is_asked_again(host: AsyncioHost) -> None:
    call = Call(asking({"a": form("a"), "b": form("b")}), host)
    await call.leg()
    assert asked(await call.leg({"b": number(2)})) == ["a"]
    assert await call.leg({"a": number(1)}) == Completed({"answers": [{"a": number(1), "b": number(2)}]})


async def test_an_answer_that_came_before_its_question_does_not_count(host: AsyncioHost) -> None:
    call = Call(asking({"k": form("1?")}, {"later": form("2?")}), host)
    assert asked(await call.leg({"k": number(9), "later": number(9)})) == ["k"]
    assert call.journal.answers == {}
    assert asked(await call.leg({"k": number(1), "later": number(9), "1:k": number(9)})) == ["later"]
    assert asked(await call.leg({"k": number(9)})) == ["later"]


async def test_the_answer_to_a_question_that_has_changed_by_one_digit_does_not_count(host: AsyncioHost) -> None:
    call = Call(asking({"k": form("Delete 3?")}), host)
    await call.leg()
    call.function = asking({"k": form("Delete 300?")})
    assert message_of(await call.leg({"k": number(1)}), "k") == "Delete 300?"
    assert await call.leg({"k": number(2)}) == Completed({"answers": [{"k": number(2)}]})


async def test_a_form_that_does_not_fit_is_asked_three_times_with_the_reason(host: AsyncioHost) -> None:
    passed_on: list[dict[str, Answer]] = []
    call = Call(asking({"k": form("1?"), "other": form("2?")}, passed_on=passed_on), host)
    answers = {"k": number("secret"), "other": number(2)}
    outcomes = [await call.leg(answers) for _ in range(MAX_ASKED + 1)]  # the first answers come before the questions
    assert [message_of(outcome, "k").splitlines()[0] for outcome in outcomes[:-1]] == ["1?"] * MAX_ASKED
    assert message_of(outcomes[1], "k").startswith("1?\n\nThe last answer was not accepted. ")
    assert asked(outcomes[1]) == ["k"]
    failed = outcomes[-1]
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, CannotContinue)
    assert str(failed.error).startswith("The client's answers to 'k' do not match what was asked.")
    assert "secret" not in str(failed.error)
    assert passed_on == []


async def test_a_form_that_fits_at_the_second_time_is_passed_on(host: AsyncioHost) -> None:
    call = Call(asking({"k": form("1?")}), host)
    await call.leg()
    await call.leg({"k": number("x")})
    assert await call.leg({"k": number(1)}) == Completed({"answers": [{"k": number(1)}]})


async def test_what_the_client_cannot_be_asked_ends_the_call_with_what_it_lacks(host: AsyncioHost) -> None:
    call = Call(asking({"k": form("1?")}), host)
    outcome = await call.leg(can=lambda _path: False)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, MissingCapability)
    assert call.journal.pending == {}


@pytest.mark.parametrize("key", ["", "a~b", "x" * 201, "\n"])
async def test_a_key_that_no_wire_can_carry_is_refused(host: AsyncioHost, key: str) -> None:
    outcome = await Call(asking({key: form("1?")}), host).leg()
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, AuthoringError)


async def test_a_journal_does_not_grow_with_its_rounds(host: AsyncioHost) -> None:
    async def run(leg: RelayLeg) -> dict[str, Any]:
        slot = leg.slot or {"round": 0}
        leg.forget_round(slot["round"] - 1)
        await leg.keep_slot({"round": slot["round"] + 1})
        await leg.ask_forwarded({"k": form("x")})
        return {}

    call = Call(run, host)
    sizes = []
    for _ in range(30):
        assert asked(await call.leg({"k": number(1)})) == ["k"]
        sizes.append(len(pack(call.rest)))
    assert max(sizes[3:]) <= sizes[2] + 2


async def test_rounds_whose_numbers_begin_alike_are_forgotten_one_by_one(host: AsyncioHost) -> None:
    async def run(leg: RelayLeg) -> dict[str, Any]:
        leg.journal.answers = {"1:k": {b"": DECLINED}, "11:k": {b"": DECLINED}}
        leg.journal.refused = {"1:k": 1, "11:k": 1}
        leg.forget_round(1)
        return {}

    call = Call(run, host)
    await call.leg()
    assert (list(call.journal.answers), list(call.journal.refused)) == (["11:k"], ["11:k"])


async def test_a_slot_is_stored_at_once_where_there_is_a_store(host: AsyncioHost) -> None:
    keeper = Keeper()
    call = Call(asking({"k": form("1?")}), host)
    await call.leg(keeper=keeper)
    assert keeper.slots == [{"round": 1, "answers": []}]
    assert call.journal.slot == {"round": 1, "answers": []}


async def test_a_leg_whose_slot_cannot_be_stored_has_no_further_effect(host: AsyncioHost) -> None:
    went_on: list[str] = []

    async def run(leg: RelayLeg) -> dict[str, Any]:
        try:
            await leg.keep_slot({"round": 1})
        except LegStopped:
            went_on.append("stopped")
        await leg.ask_forwarded({"k": form("1?")})
        went_on.append("asked")
        return {}

    outcome = await Call(run, host).leg(keeper=Keeper(broken=True))
    assert isinstance(outcome, NotKept)
    assert went_on == ["stopped"]


async def test_a_slot_is_kept_and_written_back_by_a_release_that_knows_none(host: AsyncioHost) -> None:
    """Such a release keeps what it does not know in `unknown`."""
    call = Call(asking({"k": form("1?")}), host)
    await call.leg()
    rest = call.rest
    older = Journal.from_map({name: value for name, value in rest.items() if name != "slot"})
    older.unknown = {"slot": rest["slot"]}
    assert Journal.from_map(older.to_map()).slot == {"round": 1, "answers": []}


@pytest.mark.parametrize("slot", [None, 1, {}, {"round": "1"}, {"round": True}, {1: 1, "round": 1}])
def test_a_slot_of_another_form_is_refused(slot: Any) -> None:
    rest = Journal.begin(now_ms=1, flow_max_ms=1, random_bytes=bytes).to_map()
    with pytest.raises(MalformedJournal):
        Journal.from_map({**rest, "slot": slot})


def test_a_call_without_a_slot_stores_none() -> None:
    assert "slot" not in Journal.begin(now_ms=1, flow_max_ms=1, random_bytes=bytes).to_map()


async def test_a_relay_is_not_ended_by_the_time_limit_of_a_leg(host: AsyncioHost) -> None:
    async def outlast_the_limit(_leg: RelayLeg) -> dict[str, Any]:
        await host.run_sync(lambda: math.factorial(10))
        await _after(host, 0.1)
        return {}

    async def stay(_leg: RelayLeg) -> dict[str, Any]:
        await host.park()  # only the limit can end it, however busy the machine is
        return {}

    assert await Call(outlast_the_limit, host).leg() == Completed({})
    limited = await Call(stay, host).leg(limited=True)
    assert isinstance(limited, Failed)
    assert isinstance(limited.error, LegTimedOut)


async def _after(host: AsyncioHost, seconds: float) -> None:
    over = host.time() + seconds
    while host.time() < over:
        await host.yield_now()


async def test_logs_of_every_leg_are_new_and_an_unknown_level_is_info(host: AsyncioHost) -> None:
    async def run(leg: RelayLeg) -> dict[str, Any]:
        told = [leg.relay_log("error", {"x": 1}, "db"), leg.relay_log("loud", "a"), leg.relay_log(None, None, 7)]
        await leg.ask_forwarded({"k": form("1?")})
        return {"told": told}

    call, notices = Call(run, host), Notices()
    await call.leg(notices=notices)
    assert notices.logs == [("error", {"x": 1}, "db"), ("info", "a", None), ("info", None, None)]
    await call.leg({"k": number(1)}, notices=notices)
    assert notices.logs[3:] == notices.logs[:3]
    assert call.journal.logs == 6


async def test_progress_that_is_not_above_the_last_one_or_no_finite_number_is_dropped(host: AsyncioHost) -> None:
    reports = [(1, 10), (1, 10), (0.5, 10), (math.nan, 1), (math.inf, 1), ("2", 1), (True, 1), (2, 5), (3, math.nan)]

    async def run(leg: RelayLeg) -> dict[str, Any]:
        return {"sent": [leg.relay_progress(done, total, 7) for done, total in reports]}

    call, notices = Call(run, host), Notices()
    assert await call.leg(notices=notices) == Completed({"sent": [True, *[False] * 6, True, True]})
    assert notices.reports == [(1, 10, None), (2, 10, None), (3, None, None)]
    assert await call.leg(notices=notices) == Completed({"sent": [False] * 9})


@given(st.lists(st.floats() | st.integers()))
async def test_progress_only_rises(values: list[float]) -> None:
    host, notices = AsyncioHost(None, "r"), Notices()
    try:

        async def run(leg: RelayLeg) -> dict[str, Any]:
            for value in values:
                leg.relay_progress(value)
            return {}

        await Call(run, host).leg(notices=notices)
    finally:
        host.close()
    sent = [done for done, _, _ in notices.reports]
    assert sent == sorted(set(sent))
    assert all(map(math.isfinite, sent))


async def test_nothing_is_passed_on_to_a_client_that_asked_for_nothing(host: AsyncioHost) -> None:
    async def run(leg: RelayLeg) -> dict[str, Any]:
        return {"told": [leg.relay_log("info", "x"), leg.relay_progress(1)]}

    assert await Call(run, host).leg() == Completed({"told": [False, False]})


async def test_a_relay_sheds_a_call_a_few_times_and_only_where_its_client_can_carry_it(host: AsyncioHost) -> None:
    async def run(leg: RelayLeg) -> dict[str, Any]:
        return {"shed": leg.shed_bare()}

    call = Call(run, host)
    assert await call.leg() == Completed({"shed": False})
    assert [await call.leg(may_shed=True) for _ in range(MAX_SHEDS)] == [Shed()] * MAX_SHEDS
    assert await call.leg(may_shed=True) == Completed({"shed": False})


async def test_a_call_that_has_asked_often_is_not_shed(host: AsyncioHost) -> None:
    async def run(leg: RelayLeg) -> dict[str, Any]:
        return {"shed": leg.shed_bare()}

    call = Call(run, host)
    call.rest["rounds"] = MAX_ROUNDS_BEFORE_SHED + 1
    assert await call.leg(may_shed=True) == Completed({"shed": False})


async def test_a_relay_knows_whether_it_runs_in_a_task(host: AsyncioHost) -> None:
    async def run(leg: RelayLeg) -> dict[str, Any]:
        return {"in_task": leg.in_task}

    call = Call(run, host)
    assert await call.leg() == Completed({"in_task": False})
    assert await call.leg(detaching=Detaching.DONE) == Completed({"in_task": True})
