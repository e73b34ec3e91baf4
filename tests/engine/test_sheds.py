"""When a leg ends early so another process can continue, and when it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gateway.engine.journal import Journal, MalformedJournal
from gateway.engine.leg import MAX_ROUNDS_BEFORE_SHED, MAX_SHEDS, Detaching, Leg
from gateway.engine.outcomes import Completed, Detached, NeedsInput, Shed
from gateway.engine.questions import Answer, Question


def always() -> bool:
    return True


def count_to(last: int) -> Callable[[Leg], Any]:
    """Return a tool that counts, with a checkpoint after each number, and what it counted."""
    counted: list[int] = []

    async def count(leg: Leg) -> list[int]:
        for number in range(leg.resumed(0) + 1, last + 1):
            counted.append(number)
            await leg.checkpoint(number)
        return counted

    return count


async def test_a_leg_is_shed_at_its_checkpoint_and_the_next_one_resumes_after_it(begin: Any) -> None:
    call = begin(count_to(4))
    assert await call.leg(sheds=always) == Shed()
    assert await call.leg(sheds=always) == Shed()
    outcome = await call.leg(sheds=always)
    assert outcome == Completed([1, 2, 3, 4])


async def test_a_call_is_shed_no_more_often_than_clients_bear(begin: Any) -> None:
    call = begin(count_to(50))
    outcomes = [await call.leg(sheds=always) for _ in range(MAX_SHEDS + 1)]
    assert [type(outcome) for outcome in outcomes] == [Shed] * MAX_SHEDS + [Completed]
    assert call.journal.sheds == MAX_SHEDS


async def test_nobody_is_asked_whether_to_shed_where_that_could_not_be(begin: Any) -> None:
    call = begin(count_to(50))
    for _ in range(MAX_SHEDS):
        await call.leg(sheds=always)

    def nobody_asks() -> bool:
        raise AssertionError

    assert isinstance(await call.leg(sheds=nobody_asks), Completed)


async def test_a_leg_that_is_not_to_be_shed_runs_to_its_end(begin: Any) -> None:
    call = begin(count_to(4))
    assert isinstance(await call.leg(sheds=lambda: False), Completed)
    assert call.journal.sheds == 0


async def test_a_leg_without_progress_is_not_shed(begin: Any) -> None:
    async def stays(leg: Leg) -> str:
        await leg.checkpoint({"at": 1})
        await leg.checkpoint({"at": 1})
        return "done"

    call = begin(stays)
    assert await call.leg(sheds=always) == Shed()
    assert await call.leg(sheds=always) == Completed("done")


@pytest.mark.parametrize("kind", ["step", "answer", "early answer"])
async def test_a_new_step_or_answer_is_progress(
    begin: Any, integer: Callable[..., Question], accept: Callable[[Any], Answer], kind: str
) -> None:
    async def tool(leg: Leg) -> str:
        await leg.checkpoint("the same")
        if kind == "step":
            await leg.step("s", str, ("1",))
        else:
            await leg.ask({"n": integer()})
        await leg.checkpoint("the same")
        return "done"

    call = begin(tool)
    assert await call.leg(sheds=always) == Shed()
    if kind == "answer":
        assert isinstance(await call.leg(sheds=always), NeedsInput)
    answers = {} if kind == "step" else {"n": accept(1)}
    assert await call.leg(answers, sheds=always) == Shed()
    assert await call.leg(sheds=always) == Completed("done")


async def test_a_call_that_has_asked_often_keeps_its_rounds_for_questions(
    begin: Any, integer: Callable[..., Question], accept: Callable[[Any], Answer]
) -> None:
    async def asks(leg: Leg) -> str:
        for number in range(MAX_ROUNDS_BEFORE_SHED + 1):
            await leg.ask({f"n{number}": integer(f"n{number}")})
        await leg.checkpoint(1)
        return "done"

    call = begin(asks)
    await call.leg()
    for number in range(MAX_ROUNDS_BEFORE_SHED):
        assert isinstance(await call.leg({f"n{number}": accept(number)}), NeedsInput)
    assert await call.leg({f"n{MAX_ROUNDS_BEFORE_SHED}": accept(1)}, sheds=always) == Completed("done")


async def test_a_call_with_rounds_left_is_shed(
    begin: Any, integer: Callable[..., Question], accept: Callable[[Any], Answer]
) -> None:
    async def asks(leg: Leg) -> str:
        for number in range(MAX_ROUNDS_BEFORE_SHED):
            await leg.ask({f"n{number}": integer(f"n{number}")})
        await leg.checkpoint(1)
        return "done"

    call = begin(asks)
    await call.leg()
    for number in range(MAX_ROUNDS_BEFORE_SHED - 1):
        await call.leg({f"n{number}": accept(number)})
    assert await call.leg({f"n{MAX_ROUNDS_BEFORE_SHED - 1}": accept(1)}, sheds=always) == Shed()


async def test_a_call_that_may_be_shed_no_more_becomes_a_task_if_it_can(begin: Any) -> None:
    call = begin(count_to(50))
    for _ in range(MAX_SHEDS):
        assert await call.leg(sheds=always, detaching=Detaching.POSSIBLE) == Shed()
    assert await call.leg(sheds=always, detaching=Detaching.POSSIBLE) == Detached()


async def test_no_tool_can_swallow_a_shed(begin: Any) -> None:
    async def stubborn(leg: Leg) -> str:
        try:
            await leg.checkpoint(1)
        except BaseException:  # noqa: BLE001
            return "went on"
        return "done"

    assert await begin(stubborn).leg(sheds=always) == Shed()


def test_a_journal_of_the_release_before_was_never_shed() -> None:
    rest = Journal.begin(now_ms=1, flow_max_ms=1, random_bytes=bytes).to_map()
    assert "sheds" not in rest
    assert Journal.from_map(rest).sheds == 0


@pytest.mark.parametrize("sheds", ["1", 1.5, None, True])
def test_a_count_of_another_type_is_not_a_journal(sheds: Any) -> None:
    rest = Journal.begin(now_ms=1, flow_max_ms=1, random_bytes=bytes).to_map()
    with pytest.raises(MalformedJournal):
        Journal.from_map({**rest, "sheds": sheds})
