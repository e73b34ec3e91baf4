"""A test can crash a process after a step, lose a response, and see what happened twice."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel

from gateway import Context, tool
from gateway.errors import CannotContinue
from gateway.testing import Asked, LegRun, Run, crash_after, lose_response, run


class Card(BaseModel):
    number: str


charges: list[str] = []


@pytest.fixture(autouse=True)
def no_charges() -> None:
    charges.clear()


def charge(key: str) -> str:
    charges.append(key)
    return "receipt"


@tool
async def pay(ctx: Context) -> str:
    """Pay."""
    await ctx.step("quote", lambda: 5)
    await ctx.elicit("card", "Which card?", Card)
    try:
        receipt = await ctx.step("charge", charge, ctx.step_id("charge"))
    except Exception:  # noqa: BLE001 - a crash must not be one
        return "swallowed"
    await ctx.step("ship", lambda: None)
    return receipt


ANSWERS: dict[str, Any] = {"card": {"number": "1"}}


def test_a_crash_after_a_step_runs_the_step_again_with_the_same_id() -> None:
    done = run(pay, answers=ANSWERS, faults=[crash_after("charge")])
    assert done.value == "receipt"
    assert done.steps == {"quote": 1, "charge": 2, "ship": 1}
    assert done.repeated == ["charge"]
    assert len(charges) == 2
    assert len(set(charges)) == 1


def test_a_single_fault_needs_no_list() -> None:
    assert run(pay, answers=ANSWERS, faults=crash_after("charge")).repeated == ["charge"]


def test_a_crash_in_the_first_leg_begins_a_new_call() -> None:
    @tool
    async def pays(ctx: Context) -> None:
        await ctx.step("charge", charge, ctx.step_id("charge"))

    run(pays, faults=[crash_after("charge")])
    assert len(set(charges)) == 2


def test_a_crash_may_happen_several_times() -> None:
    done = run(pay, answers=ANSWERS, faults=[crash_after("charge", times=3), crash_after("ship")])
    assert done.steps == {"quote": 1, "charge": 5, "ship": 2}


def test_a_lost_response_repeats_everything_that_its_leg_did_for_the_first_time() -> None:
    done = run(pay, answers=ANSWERS, faults=[lose_response(2)])
    assert done.steps == {"quote": 1, "charge": 2, "ship": 2}
    assert run(pay, answers=ANSWERS, faults=[lose_response()]).repeated == ["quote"]
    assert run(pay, answers=ANSWERS, lose_responses=True).repeated == ["quote", "charge", "ship"]


def test_the_history_has_each_leg_with_its_steps_and_its_end() -> None:
    done = run(pay, answers=ANSWERS, faults=[crash_after("charge"), lose_response(1)])
    assert done.history == [
        LegRun(1, ("quote",), ("card",), "lost"),
        LegRun(1, ("quote",), ("card",), "asked"),
        LegRun(2, ("charge",), (), "crashed"),
        LegRun(2, ("charge", "ship"), (), "returned"),
    ]
    assert repr(done) == (
        "<Run: 4 legs; asked card; ran quote ×2, charge ×2, ship; leg 1 lost; leg 2 crashed; returned 'receipt'>"
    )


def test_a_run_shows_what_happened() -> None:
    done = run(pay)
    assert repr(done) == "<Run: 1 leg; asked card; ran quote; no answer to card>"
    assert done.questions == [Asked("card", "Which card?", done.unanswered["card"].params["requestedSchema"])]
    assert repr(Run(result={"content": []}, value="x" * 200)).endswith("xxx…>")


def test_a_function_that_returns_an_awaitable_has_run_before_the_crash() -> None:
    async def later() -> None:
        await asyncio.sleep(0)
        charges.append("later")

    @tool
    async def awaits(ctx: Context) -> None:
        await ctx.step("s", lambda: later())  # noqa: PLW0108 - not a coroutine function

    assert run(awaits, faults=[crash_after("s")]).steps == {"s": 2}
    assert charges == ["later", "later"]


def test_code_that_cleans_up_after_a_crash_does_nothing_through_the_context() -> None:
    @tool
    async def cleans(ctx: Context) -> None:
        try:
            await ctx.step("s", lambda: None)
        finally:
            await ctx.step("release", charge, "release")

    assert run(cleans, faults=[crash_after("s")]).steps == {"s": 2, "release": 1}


# Tasks


@pytest.mark.parametrize("detaches", [True, False])
def test_a_worker_that_crashes_keeps_what_its_task_had_stored(detaches: bool) -> None:
    @tool(task="optional", start="call" if detaches else "task")
    async def works(ctx: Context) -> int:
        await ctx.detach()
        found = ctx.resumed(0)
        await ctx.step("a", lambda: None)
        if not found:
            await ctx.checkpoint(7)
        await ctx.step("b", charge, ctx.step_id("b"))
        return found

    done = run(works, faults=[crash_after("b")])
    assert (done.value, done.steps) == (7, {"a": 1, "b": 2})
    assert len(set(charges)) == 1


@pytest.mark.parametrize(("attempts", "crashes"), [(1, 1), (3, 3)])
def test_a_task_fails_when_it_has_lost_all_its_workers(attempts: int, crashes: int) -> None:
    @tool(task="required", max_attempts=attempts)
    async def works(ctx: Context) -> None:
        await ctx.step("s", charge, "s")

    with pytest.raises(CannotContinue, match="max_attempts"):
        run(works, faults=[crash_after("s", times=crashes)])
    assert len(charges) == crashes


def test_a_crash_ends_a_call_whose_state_works_once() -> None:
    @tool(single_use=True)
    async def once(ctx: Context) -> None:
        await ctx.elicit("card", "?", Card)
        await ctx.step("charge", charge, "x")

    with pytest.raises(CannotContinue, match="single_use=True, so the leg that crashed may not run again"):
        run(once, answers=ANSWERS, faults=[crash_after("charge")])
    assert charges == ["x"]
    assert run(once, answers=ANSWERS, faults=[lose_response(2)]).repeated == []


@pytest.mark.parametrize("faults", [[crash_after("s"), lose_response(1)], [lose_response(1), lose_response(2)]])
def test_each_lost_response_of_a_task_counts_as_a_lost_worker(faults: list[Any]) -> None:
    @tool(task="required", max_attempts=2)
    async def works(ctx: Context) -> None:
        await ctx.step("s", charge, "s")
        await ctx.elicit("card", "?", Card)

    with pytest.raises(CannotContinue, match="lost 2 workers, its max_attempts"):
        run(works, answers=ANSWERS, faults=faults)


@pytest.mark.parametrize(("attempts", "lost"), [(1, 0), (2, 1), (3, 2)])
def test_losing_every_response_spares_the_last_worker_of_a_task(attempts: int, lost: int) -> None:
    @tool(task="required", max_attempts=attempts)
    async def works(ctx: Context) -> None:
        await ctx.elicit("card", "?", Card)

    done = run(works, answers=ANSWERS, lose_responses=True)
    assert [leg.ended for leg in done.history].count("lost") == lost


def test_each_leg_gets_its_arguments_anew() -> None:
    @tool
    async def orders(ctx: Context, lines: list[str]) -> list[str]:
        lines.append("shipping")
        await ctx.elicit("card", "?", Card)
        return lines

    arguments = {"lines": ["tea"]}
    assert run(orders, arguments, answers=ANSWERS).value == ["tea", "shipping"]
    assert arguments == {"lines": ["tea"]}


# Time and chance


@tool
async def draws(ctx: Context) -> list[str]:
    """Return everything that the context draws."""
    await ctx.elicit("card", "?", Card)
    return [ctx.now().isoformat(), str(ctx.uuid("k")), str(ctx.random("k")), ctx.call_id, ctx.step_id("k")]


def test_time_and_randomness_can_be_set() -> None:
    now = datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC)
    first, again = (run(draws, answers=ANSWERS, now=now, seed=1).value for _ in range(2))
    assert first == again
    assert first[0] == "2001-02-03T04:05:06+00:00"
    other = run(draws, answers=ANSWERS, now=now, seed="1").value
    assert not set(first[1:]) & set(other[1:])
    assert not set(first[1:]) & set(run(draws, answers=ANSWERS).value[1:])


def test_with_a_seed_a_repeated_first_leg_still_begins_another_call() -> None:
    @tool
    async def pays(ctx: Context) -> None:
        await ctx.step("charge", charge, ctx.step_id("charge"))

    run(pays, faults=[crash_after("charge")], seed=1)
    assert len(set(charges)) == 2
