"""Storing what a running task learns: steps at once, checkpoints and progress at intervals, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from gateway.engine.journal import Checkpoint
from gateway.errors import LeaseLost, TaskStoreDown, ValueTooLarge
from gateway.tasks.model import Progress
from gateway.tasks.ports import Claim, Kept
from gateway_workers import retry
from gateway_workers.task_writer import TaskWriter
from tests.waiting import until


class Queue:
    """Records what is written, and fails as often as a test wants."""

    def __init__(self) -> None:
        self.kept: list[Kept] = []
        self.emitted: list[tuple[int, Mapping[str, Any]]] = []
        self.failures: list[Exception] = []

    async def keep(self, claim: Claim, kept: Kept) -> None:
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop()
        self.kept.append(kept)

    async def emit(self, claim: Claim, seq: int, block: Mapping[str, Any]) -> None:
        if self.failures:
            raise self.failures.pop()
        self.emitted.append((seq, block))


def make_claim() -> Claim:
    return Claim(
        owner="owner",
        task_id="task",
        tool="tool",
        tool_version=1,
        form="released",
        capabilities={},
        arguments={},
        principal=None,
        context={},
        partition=0,
        entry_id="1-0",
        generation=1,
        token="token",
        attempt=1,
        max_attempts=3,
        created_ms=0,
        expires_ms=60_000,
        now_ms=0,
        journal={"flow": "f"},
    )


class Case:
    """A keeper, its queue, and the lost leases that it reported."""

    def __init__(self) -> None:
        self.queue = Queue()
        self.claim = make_claim()
        self.leaving = False
        self.lost: list[LeaseLost] = []
        self.keeper = TaskWriter(self.queue, self.claim, lambda: self.leaving, self.lost.append)  # type: ignore[arg-type]

    async def settle(self) -> None:
        """Let everything that is due be written."""
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.fixture
async def case(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Case]:
    monkeypatch.setattr(retry, "FIRST_PAUSE_SECONDS", 0)
    case = Case()
    yield case
    case.keeper.abandon()


async def test_a_step_is_written_when_it_is_kept(case: Case) -> None:
    await case.keeper.keep_step("fetch", [1])
    assert [kept.steps for kept in case.queue.kept] == [{"fetch": [1]}]
    assert case.claim.journal["steps"] == {"fetch": [1]}


async def test_the_slot_of_a_relay_is_written_before_the_relay_goes_on(case: Case) -> None:
    case.queue.failures = [TaskStoreDown()]
    await case.keeper.keep_slot({"round": 1})
    assert [kept.slot for kept in case.queue.kept] == [{"round": 1}]
    assert case.claim.journal["slot"] == {"round": 1}


async def test_a_slot_that_was_not_stored_is_not_part_of_the_journal(case: Case) -> None:
    case.queue.failures = [LeaseLost(cancelled=False)]
    with pytest.raises(LeaseLost):
        await case.keeper.keep_slot({"round": 1})
    assert "slot" not in case.claim.journal


async def test_a_segment_is_written_when_it_is_kept(case: Case) -> None:
    await case.keeper.keep_emit(1, {"type": "text"})
    assert case.queue.emitted == [(1, {"type": "text"})]


async def test_a_write_is_repeated_until_the_store_does_it(case: Case) -> None:
    case.queue.failures = [TaskStoreDown(), TaskStoreDown()]
    await case.keeper.keep_step("fetch", 1)
    assert len(case.queue.kept) == 1


async def test_a_lost_lease_ends_the_leg(case: Case) -> None:
    case.queue.failures = [LeaseLost(cancelled=False)]
    with pytest.raises(LeaseLost):
        await case.keeper.keep_step("fetch", 1)
    assert "steps" not in case.claim.journal


async def test_a_value_that_the_store_will_never_accept_ends_the_leg_at_once(case: Case) -> None:
    case.queue.failures = [ValueTooLarge("It", 2, 1)]
    with pytest.raises(ValueTooLarge):
        await case.keeper.keep_step("fetch", 1)
    assert "steps" not in case.claim.journal


async def test_a_checkpoint_that_the_timer_cannot_write_is_dropped_and_the_next_one_raises(case: Case) -> None:
    await case.keeper.keep_checkpoint(Checkpoint(1, 0))
    await case.keeper.keep_checkpoint(Checkpoint(1, "too large"))
    case.queue.failures = [ValueTooLarge("It", 2, 1)]
    await until(lambda: not case.queue.failures)
    await case.settle()
    case.queue.failures = [ValueTooLarge("It", 2, 1)]
    with pytest.raises(ValueTooLarge):
        await case.keeper.keep_checkpoint(Checkpoint(1, "too large again"))
    assert [kept.checkpoint and kept.checkpoint["value"] for kept in case.queue.kept] == [0]


async def test_a_refusal_while_the_task_changes_hands_is_left_to_the_final_write(case: Case) -> None:
    case.keeper.progress(3, 3, "too large")
    case.queue.failures = [ValueTooLarge("It", 2, 1)]
    await case.keeper.flush()
    assert case.queue.failures == []
    assert case.queue.kept == []


async def test_of_many_checkpoints_in_a_second_the_first_is_written_at_once(case: Case) -> None:
    for number in range(100):
        assert not await case.keeper.keep_checkpoint(Checkpoint(1, number))
    assert [kept.checkpoint and kept.checkpoint["value"] for kept in case.queue.kept] == [0]


async def test_the_last_of_them_is_written_by_itself_a_second_later(case: Case) -> None:
    for number in range(3):
        await case.keeper.keep_checkpoint(Checkpoint(1, number))
    await until(lambda: len(case.queue.kept) == 2)
    assert [kept.checkpoint and kept.checkpoint["value"] for kept in case.queue.kept] == [0, 2]
    assert case.claim.journal["checkpoint"]["value"] == 2


async def test_a_checkpoint_of_a_leaving_worker_ends_the_leg_without_a_write(case: Case) -> None:
    case.leaving = True
    assert await case.keeper.keep_checkpoint(Checkpoint(1, "here"))
    assert case.queue.kept == []


async def test_progress_goes_with_the_next_write_in_its_newest_form(case: Case) -> None:
    case.keeper.progress(1, 3, None)
    case.keeper.progress(2, 3, "nearly")
    await case.keeper.keep_step("fetch", 1)
    assert [kept.progress for kept in case.queue.kept] == [Progress(2, 3, "nearly")]


async def test_progress_is_written_by_the_timer_even_from_a_thread(case: Case) -> None:
    await asyncio.to_thread(case.keeper.progress, 1, None, None)
    await until(lambda: bool(case.queue.kept))
    assert case.queue.kept[0].progress == Progress(1)
    assert case.claim.journal["progress"] == 1


async def test_held_back_values_are_written_before_the_task_changes_hands(case: Case) -> None:
    case.keeper.progress(3, 3, None)
    await case.keeper.flush()
    assert [kept.progress for kept in case.queue.kept] == [Progress(3, 3)]
    case.keeper.progress(4, 4, None)
    await case.settle()
    assert len(case.queue.kept) == 1


async def test_a_lease_that_is_found_lost_between_two_writes_is_reported(case: Case) -> None:
    case.queue.failures = [LeaseLost(cancelled=True)]
    case.keeper.progress(1, None, None)
    await until(lambda: bool(case.lost))
    assert case.lost[0].cancelled
