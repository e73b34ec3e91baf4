"""A leg of a task: what it learns is stored while it runs, blocks are emitted once, and a call can become a task."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from gateway.authoring.asyncio_host import AsyncioHost
from gateway.engine.driver import LegFunction, run_leg
from gateway.engine.journal import Checkpoint, Journal, MalformedJournal
from gateway.engine.leg import EMITS_AT_ONCE, Detaching, Leg
from gateway.engine.outcomes import Completed, Detached, Failed, NeedsInput, NotKept, Outcome, Shed
from gateway.engine.questions import Question
from gateway.errors import AuthoringError, ResultTooLarge
from gateway.sealing.packing import pack, unpack
from tests.calls.policies import POLICY


def block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


class Lost(Exception):
    """The carrier is gone."""


class Keeper:
    """Stores everything; `failing` names the method that fails, `sheds` ends the leg at a checkpoint."""

    def __init__(self, failing: str = "", *, sheds: bool = False) -> None:
        self.kept: list[Any] = []
        self.failing = failing
        self.sheds = sheds

    async def _keep(self, what: str, *kept: Any) -> None:
        await asyncio.sleep(0)
        if what == self.failing:
            raise Lost
        self.kept.append((what, *kept))

    async def keep_step(self, key: str, value: Any) -> None:
        await self._keep("step", key, value)

    async def keep_emit(self, number: int, emitted: dict[str, Any]) -> None:
        await self._keep("emit", number, emitted["text"])

    async def keep_slot(self, slot: dict[str, Any]) -> None: ...

    async def keep_checkpoint(self, checkpoint: Checkpoint) -> bool:
        await self._keep("checkpoint", checkpoint)
        return self.sheds


class Task:
    """A call whose legs have a keeper; its journal is packed in between."""

    def __init__(self, host: AsyncioHost) -> None:
        self.host = host
        self.rest: Mapping[str, Any] = Journal.begin(now_ms=1, flow_max_ms=1, random_bytes=bytes).to_map()

    async def leg(
        self,
        function: LegFunction,
        keeper: Keeper | None = None,
        detaching: Detaching = Detaching.DONE,
        *,
        version: int = 1,
    ) -> Outcome:
        journal = Journal.from_map(unpack(pack(dict(self.rest))))
        leg = Leg(
            journal, {}, self.host, POLICY, supports=lambda _: True, keeper=keeper, detaching=detaching, version=version
        )
        outcome = await run_leg(function, leg)
        self.rest = journal.to_map()
        return outcome

    @property
    def segments(self) -> list[str]:
        return [emitted["text"] for emitted in Journal.from_map(self.rest).segments]


@pytest.fixture
def task(host: AsyncioHost) -> Task:
    return Task(host)


# What is kept, and when


async def test_a_step_is_kept_before_the_function_continues(task: Task) -> None:
    keeper = Keeper()

    async def function(leg: Leg) -> Any:
        value = await leg.step("s", lambda: (1, 2), ())
        assert keeper.kept == [("step", "s", [1, 2])]
        return value

    assert await task.leg(function, keeper) == Completed([1, 2])


async def test_a_recorded_step_is_not_kept_again(task: Task) -> None:
    async def function(leg: Leg) -> Any:
        return await leg.step("s", lambda: 1, ())

    await task.leg(function, Keeper())
    keeper = Keeper()
    assert await task.leg(function, keeper) == Completed(1)
    assert keeper.kept == []


async def test_a_checkpoint_is_kept_with_what_was_reported_before_it(task: Task) -> None:
    async def function(leg: Leg) -> None:
        leg.log("info", "one", None)
        await leg.emit(block("a"))
        await leg.checkpoint({"done": 1})

    keeper = Keeper()
    await task.leg(function, keeper)
    assert keeper.kept[-1] == ("checkpoint", Checkpoint(1, {"done": 1}, logs=1, emits=1))


async def test_a_keeper_may_end_the_leg_at_a_checkpoint(task: Task) -> None:
    reached: list[int] = []

    async def function(leg: Leg) -> None:
        for number in range(leg.resumed(0), 3):
            reached.append(number)
            try:
                await leg.checkpoint(number + 1)
            except Exception:  # noqa: BLE001
                raise AssertionError("a tool can swallow the stop") from None

    for done in range(3):
        assert await task.leg(function, Keeper(sheds=True)) == Shed()
        assert Journal.from_map(task.rest).checkpoint == Checkpoint(1, done + 1)
    assert await task.leg(function, Keeper(sheds=True)) == Completed(None)
    assert reached == [0, 1, 2]


@pytest.mark.parametrize("failing", ["step", "emit", "checkpoint"])
async def test_a_value_that_cannot_be_kept_ends_the_leg_and_no_tool_can_swallow_it(task: Task, failing: str) -> None:
    async def function(leg: Leg) -> str:
        acts: list[Callable[[], Any]] = [
            lambda: leg.step("s", lambda: 1, ()),
            lambda: leg.emit(block("a")),
            lambda: leg.checkpoint(1),
        ]
        for act in acts:
            with contextlib.suppress(Exception):
                await act()
        return "went on"

    outcome = await task.leg(function, Keeper(failing))
    assert isinstance(outcome, NotKept)
    assert isinstance(outcome.error, Lost)


async def test_cancellation_reaches_the_function_at_its_next_await_and_the_caller(task: Task) -> None:
    seen: list[str] = []
    running = asyncio.Event()

    async def function(leg: Leg) -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    leg = asyncio.create_task(task.leg(function, Keeper()))
    await running.wait()
    leg.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leg
    assert seen == ["cancelled"]


# Emitting (replay rule 6)


async def test_the_nth_block_is_emitted_once_over_all_legs(task: Task, integer: Callable[..., Question]) -> None:
    async def function(leg: Leg) -> None:
        await leg.emit(block("a"))
        await leg.emit(block("b"))
        await leg.ask({"n": integer()})

    first, second = Keeper(), Keeper()
    assert isinstance(await task.leg(function, first), NeedsInput)
    assert first.kept == [("emit", 1, "a"), ("emit", 2, "b")]
    assert isinstance(await task.leg(function, second), NeedsInput)
    assert second.kept == []
    assert task.segments == ["a", "b"]


async def test_a_stored_block_stays_as_it_is_even_if_the_function_now_emits_another(task: Task) -> None:
    for text in ("old", "new"):

        async def function(leg: Leg, text: str = text) -> None:
            await leg.emit(block(text))

        await task.leg(function)
    assert task.segments == ["old"]


async def test_a_computation_that_resumes_counts_on_from_its_checkpoint(task: Task) -> None:
    keeper = Keeper(sheds=True)

    async def function(leg: Leg) -> None:
        for number in range(leg.resumed(0), 3):
            await leg.emit(block(str(number)))
            await leg.checkpoint(number + 1)

    while await task.leg(function, keeper) == Shed():
        pass
    assert task.segments == ["0", "1", "2"]
    assert [kept[1] for kept in keeper.kept if kept[0] == "emit"] == [1, 2, 3]


async def test_blocks_after_an_old_checkpoint_are_not_doubled(task: Task) -> None:
    """The worker was lost after it emitted, and the checkpoint is older."""

    async def function(leg: Leg) -> None:
        done = leg.resumed(0)
        if not done:
            await leg.checkpoint(1)
        await leg.emit(block("after"))

    await task.leg(function)
    assert Journal.from_map(task.rest).checkpoint == Checkpoint(1, 1, emits=0)
    await task.leg(function)
    assert task.segments == ["after"]


async def test_after_a_dropped_checkpoint_counting_starts_over(task: Task) -> None:
    async def function(leg: Leg) -> None:
        leg.resumed(0)
        await leg.emit(block("a"))
        await leg.checkpoint(1)

    await task.leg(function, version=2)
    await task.leg(function, version=1)
    assert task.segments == ["a"]


async def test_two_blocks_at_once_have_no_order_and_fail(task: Task) -> None:
    async def function(leg: Leg) -> None:
        await asyncio.gather(leg.emit(block("a")), leg.emit(block("b")), return_exceptions=True)

    outcome = await task.leg(function, Keeper())
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, AuthoringError)
    assert "await one before you emit the next" in str(outcome.error)


# Detaching


async def test_detaching_ends_a_call_that_can_become_a_task_and_is_true_in_it(task: Task) -> None:
    async def function(leg: Leg) -> Any:
        await leg.step("s", lambda: 1, ())
        try:
            return await leg.detach()
        except Exception:  # noqa: BLE001
            return "swallowed"

    assert await task.leg(function, detaching=Detaching.POSSIBLE) == Detached()
    assert await task.leg(function, Keeper(), Detaching.DONE) == Completed(True)


async def test_detaching_is_false_if_it_is_impossible(task: Task) -> None:
    async def function(leg: Leg) -> Any:
        return await leg.detach()

    assert await task.leg(function, detaching=Detaching.IMPOSSIBLE) == Completed(False)


async def test_detaching_is_a_mistake_where_it_was_forbidden(task: Task) -> None:
    async def function(leg: Leg) -> Any:
        try:
            return await leg.detach()
        except AuthoringError:
            return "swallowed"

    outcome = await task.leg(function, detaching=Detaching.FORBIDDEN)
    assert isinstance(outcome, Failed)
    assert "task='optional'" in str(outcome.error)


async def test_an_ended_leg_neither_emits_nor_detaches(task: Task, integer: Callable[..., Question]) -> None:
    keeper = Keeper()

    async def function(leg: Leg) -> None:
        for act in (leg.ask({"n": integer()}), leg.emit(block("late")), leg.detach()):
            with contextlib.suppress(BaseException):
                await act

    assert isinstance(await task.leg(function, keeper), NeedsInput)
    assert (keeper.kept, task.segments) == ([], [])


# At rest


def test_a_checkpoint_of_the_release_before_has_emitted_nothing() -> None:
    assert Checkpoint.from_map({"version": 1, "value": 2, "logs": 3}) == Checkpoint(1, 2, 3, 0)
    assert Checkpoint(1, 2, 3).to_map() == {"version": 1, "value": 2, "logs": 3}


@pytest.mark.parametrize("segments", [7, {}, "text", ["text"], [None]])
def test_malformed_segments_are_no_journal(segments: Any) -> None:
    rest = Journal.begin(now_ms=1, flow_max_ms=1, random_bytes=bytes).to_map()
    with pytest.raises(MalformedJournal):
        Journal.from_map({**rest, "segments": segments})


@pytest.mark.parametrize("detaching", Detaching)
def test_the_size_of_a_message_is_limited_by_the_policy_only_if_a_call_waits_for_it(
    host: AsyncioHost, detaching: Detaching
) -> None:
    journal = Journal.begin(now_ms=1, flow_max_ms=1, random_bytes=bytes)
    policy = replace(POLICY, max_result_bytes=10)
    leg = Leg(journal, {}, host, policy, supports=lambda _: True, detaching=detaching)
    with contextlib.nullcontext() if detaching is Detaching.DONE else pytest.raises(ResultTooLarge):
        leg.refuse_large("more than ten", "The message")


async def test_blocks_that_are_emitted_again_let_others_run_between_them(task: Task) -> None:
    rounds: list[int] = []

    async def function(leg: Leg) -> Any:
        for number in range(2 * EMITS_AT_ONCE + 1):
            await leg.emit(block(str(number)))
        leg.stop(Shed())

    async def others() -> None:
        while True:
            rounds.append(1)
            await asyncio.sleep(0)

    assert await task.leg(function, Keeper()) == Shed()
    other = asyncio.create_task(others())
    await asyncio.sleep(0)
    rounds.clear()
    assert await task.leg(function, None) == Shed()
    assert len(rounds) >= 2
    other.cancel()
