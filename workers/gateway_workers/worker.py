"""One worker: claims tasks while it has room, runs them, and stores the outcome of each leg."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gateway.authoring.tools import Tool
from gateway.calls.failures import Failures, failed_result
from gateway.calls.task_leg import Finished, TaskLeg, TaskOutcome, Waiting, error_of, run_task_leg
from gateway.engine.host import Host
from gateway.engine.leg_policy import LegPolicy
from gateway.errors import AuditLogDown, InternalError, LeaseLost, TaskStoreDown, ValueTooLarge, WorkersLost
from gateway.observability.audit import AuditLog
from gateway.observability.logs import FLOW
from gateway.storage import RedisWorkQueue
from gateway.tasks.ports import Claim, Heartbeat
from gateway_workers.heartbeats import Heart
from gateway_workers.metrics import LegEnd, WorkerTelemetry
from gateway_workers.retry import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, outlast
from gateway_workers.shares import Pick, Shares
from gateway_workers.slots import Slots
from gateway_workers.task_writer import TaskWriter

if TYPE_CHECKING:  # a process without traces never loads OpenTelemetry, which takes memory
    from gateway.observability.tracing import Traces

log = logging.getLogger(__name__)

CLAIM_WAIT_MS: Final = 1000
CONTENDED_WAIT_MS: Final = 25
"""How long a partition may wait with a place in hand while other partitions wait for a place."""

BATCH: Final = 16
"""The largest number of tasks that one request claims."""

PASS_SECONDS: Final = 1.0
"""How often a worker with free places looks for tasks of others behind those of owners with many places."""

LOOK_SECONDS: Final = 0.25
"""How often to search a partition for tasks of other owners while those at its head belong to owners with a full
share."""

UNKNOWN_TOOL_SECONDS: Final = 60.0
"""How long to leave the task of an unknown tool to other workers, since newer ones may be starting."""

UNKNOWN_TOOL_PAUSE_SECONDS: Final = 1.0
LAST_WRITES_SECONDS: Final = 2.0


def _find_nothing(_name: str) -> None:
    return None


@dataclass(frozen=True, slots=True)
class _Untouched:
    """Nothing was run, so the task goes back unchanged."""


@dataclass(frozen=True, slots=True)
class Work:
    """The parts that a worker needs to run tasks.

    `tools` are those at the start; `find` returns one that no list has. `host` runs legs without a time limit, since a
    task is limited by its time to live. `tracing` is None if tracing is off.
    """

    tools: Mapping[str, Tool]
    queue: RedisWorkQueue
    host: Host
    telemetry: WorkerTelemetry
    audit: AuditLog
    policy: LegPolicy
    tracing: Traces | None = None
    find: Callable[[str], Tool | None] = _find_nothing


@dataclass(slots=True, eq=False)
class _Running:
    """One leg of a task while it runs.

    Attributes:
        outcome: what to store of it; None while its function may be running.
        ending: whether it has ended and its outcome is being stored.
    """

    claim: Claim
    keeper: TaskWriter
    runner: asyncio.Task[None]
    stopped: LegEnd | None = None
    outcome: TaskOutcome | _Untouched | None = _Untouched()
    ending: bool = False

    def stop(self, why: LegEnd) -> None:
        """Cancel the tool. If its outcome is already being stored, leave it to the store to refuse that."""
        if self.stopped is None and (not self.ending or why is LegEnd.HANDED_BACK):
            self.stopped = why
            self.runner.cancel()


class Worker:
    """Runs tasks until `leave` is called."""

    def __init__(self, work: Work, heart: Heart, concurrency: int) -> None:
        self._work = work
        self._tools = work.tools
        self._failures = Failures(os.urandom, work.policy)
        self._queue = work.queue
        self._heart = heart
        self._slots = Slots(concurrency)
        self._shares = Shares(concurrency)
        self._running: dict[Claim, _Running] = {}
        self._by_task: dict[tuple[str, str], _Running] = {}
        self._leaving = asyncio.Event()
        self._hurry = asyncio.Event()
        self._lacking: dict[str, float] = {}
        self._looked: dict[int, float] = {}

    def serve(self, tools: Mapping[str, Tool]) -> None:
        """Use these tools from the next leg on."""
        self._tools = tools

    def leave(self) -> None:
        """Claim no more tasks, and hand back running ones at their next checkpoint."""
        self._leaving.set()
        self._slots.close()

    def hurry(self) -> None:
        """Hand back running tasks at once."""
        self._hurry.set()

    def end(self, claim: Claim, told: Heartbeat) -> None:
        """Stop a task that must not continue."""
        running = self._running.get(claim)
        if running is not None:
            running.stop(LegEnd.CANCELLED if told is Heartbeat.CANCELLED else LegEnd.LOST)

    async def run(self, drain_seconds: float) -> bool:
        """Work until `leave` is called, then let running tasks finish or reach a checkpoint.

        Tasks that still run after `drain_seconds` are cut off, see `_cut_off`. Return whether none was.
        """
        readers = [asyncio.create_task(self._read(partition)) for partition in range(self._queue.partitions)]
        listener = asyncio.create_task(self._listen())
        try:
            await asyncio.gather(*readers)
            return await self._drain(drain_seconds)
        finally:
            for task in (*readers, listener):
                task.cancel()
            await asyncio.gather(*readers, listener, return_exceptions=True)
            await self._say_goodbye()

    async def _drain(self, drain_seconds: float) -> bool:
        if self._running:
            log.info("handing back tasks", extra={"running": len(self._running)})
        hurry = asyncio.create_task(self._hurry.wait())
        deadline = asyncio.get_running_loop().time() + drain_seconds
        while self._running and not hurry.done():
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                break
            runners = [running.runner for running in self._running.values()]
            await asyncio.wait([*runners, hurry], timeout=left, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        cut_off = list(self._running.values())
        if cut_off:
            log.warning("drain time is over; tasks are cut off", extra={"tasks": len(cut_off)})
            for running in cut_off:
                running.stop(LegEnd.HANDED_BACK)
            await asyncio.wait([running.runner for running in cut_off], timeout=2 * LAST_WRITES_SECONDS)
        return not cut_off

    async def _say_goodbye(self) -> None:
        with contextlib.suppress(TaskStoreDown, TimeoutError):
            await asyncio.wait_for(self._queue.leave(), LAST_WRITES_SECONDS)

    async def _read(self, partition: int) -> None:
        """Claim the tasks of one partition, never more than can start immediately."""
        pause = 0.0
        limited: set[str] = set()
        while (room := await self._room(partition, limited)) and (held := await self._slots.take(room)):
            claims: list[Claim] = []
            pick = Pick(self._shares)
            try:
                self._work.audit.require()
                claims = await self._queue.claim(partition, held, 0, pick.may_begin)
                if not claims and not pick.refused:
                    limited.clear()
                    # Waiting takes only one place.
                    self._slots.give(held - 1)
                    held = 1
                    claims = await self._queue.claim(partition, 1, self._claim_wait_ms(), pick.may_begin)
                pause = 0.0
            except (TaskStoreDown, AuditLogDown):
                pause = min(max(2 * pause, FIRST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
            finally:
                pick.settle(claims)
                self._slots.give(held - len(claims))
            limited |= pick.refused
            self._work.telemetry.tasks_put_back(pick.put_back)
            for claim in claims:
                self._start(claim)
            if pause:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._leaving.wait(), pause)

    async def _room(self, partition: int, limited: set[str]) -> int:
        """Wait until a task of a partition may be able to start; return how many to claim. Return 0 when leaving.

        `limited` are the owners that had a full share when a task of theirs was last seen there. Owners without a place
        are removed from the set.
        """
        while not self._leaving.is_set():
            limited -= {owner for owner in limited if not self._shares.takes_part(owner)}
            rooms = {owner: self._shares.room_for(owner) for owner in limited}
            room = min(rooms.values(), default=BATCH)
            if room:
                await self._let_others_pass(partition)
                return min(room, BATCH)
            if await self._others_come(partition, [owner for owner in rooms if not rooms[owner]]):
                return 1
            await self._shares.wait_for_change(LOOK_SECONDS)
        return 0

    async def _let_others_pass(self, partition: int) -> None:
        """Put tasks of owners with many places behind those of others, now and then.

        Where tasks are short, some places are always free, and nobody has a full share for long.
        """
        owners, now = self._shares.with_many(), asyncio.get_running_loop().time()
        if owners and now >= self._looked.get(partition, 0.0) + PASS_SECONDS:
            self._looked[partition] = now
            await self._others_come(partition, owners, further=False)

    async def _others_come(self, partition: int, owners: Sequence[str], *, further: bool = True) -> bool:
        """Put tasks of owners with a full share behind those of others, and return whether there are any others."""
        try:
            return await self._queue.make_way(partition, owners, further=further)
        except TaskStoreDown:
            return False

    def _claim_wait_ms(self) -> int:
        return CONTENDED_WAIT_MS if self._slots.contended else CLAIM_WAIT_MS

    async def _listen(self) -> None:
        """Stop cancelled tasks at once, instead of at their next heartbeat."""
        while True:
            try:
                async with contextlib.aclosing(self._queue.cancellations()) as cancelled:
                    async for task in cancelled:
                        running = self._by_task.get(task)
                        if running is not None:
                            self.end(running.claim, await self._queue.heartbeat(running.claim))
            except TaskStoreDown:
                await asyncio.sleep(LONGEST_PAUSE_SECONDS)

    def _start(self, claim: Claim) -> None:
        keeper = TaskWriter(self._queue, claim, self._leaving.is_set, partial(self._lost_while_running, claim))
        runner = asyncio.create_task(self._run(claim), name=f"task {claim.task_id}")
        running = _Running(claim, keeper, runner)
        self._running[claim] = self._by_task[claim.owner, claim.task_id] = running
        self._heart.add(claim, runner)
        self._work.telemetry.leg_started(claim.attempt)

    def _lost_while_running(self, claim: Claim, lost: LeaseLost) -> None:
        self.end(claim, Heartbeat.CANCELLED if lost.cancelled else Heartbeat.LOST)

    async def _run(self, claim: Claim) -> None:
        """Run one leg of a claimed task until it ends in any way, then release the task's place."""
        running = self._running[claim]
        FLOW.set(_flow_of(claim))  # no reset needed: this asyncio task runs nothing but the leg
        tracing = self._work.tracing
        trace = None if tracing is None else tracing.task_leg(claim.tool, claim.task_id, claim.journal)
        loop = asyncio.get_running_loop()
        limit = loop.call_later((claim.expires_ms - claim.now_ms) / 1000, running.stop, LegEnd.EXPIRED)
        began = time.perf_counter()
        end = LegEnd.FAILED
        try:
            end = await self._leg(running)
        except LeaseLost as lost:
            end = LegEnd.CANCELLED if lost.cancelled else LegEnd.LOST
        except asyncio.CancelledError:
            if running.stopped is None:
                raise
            end = running.stopped
            if end is LegEnd.HANDED_BACK:
                end = await self._end_now(running)
        finally:
            limit.cancel()
            running.keeper.abandon()
            self._forget(running)
            self._note(claim, end, time.perf_counter() - began)
            if trace is not None:
                trace.end(end.value)

    def _forget(self, running: _Running) -> None:
        claim = running.claim
        self._heart.remove(claim)
        del self._running[claim]
        if self._by_task.get((claim.owner, claim.task_id)) is running:
            del self._by_task[claim.owner, claim.task_id]
        self._shares.give(claim.owner)
        self._slots.give(1)

    def _note(self, claim: Claim, end: LegEnd, seconds: float) -> None:
        self._work.telemetry.leg_ended(claim.tool, end, seconds)
        if end in (LegEnd.LOST, LegEnd.EXPIRED):
            log.warning("task %s", end.value, extra={"tool": claim.tool, "task": claim.task_id})
        tool = self._tools.get(claim.tool)
        self._work.audit.leg(
            claim.principal,
            "tools/call",
            claim.tool,
            flow=_flow_of(claim),
            task=claim.task_id,
            leg=int(claim.journal.get("legs", 0)) + 1,
            outcome=end.value,
            seconds=seconds,
            upstream="" if tool is None else tool.upstream,
        )

    async def _leg(self, running: _Running) -> LegEnd:
        claim = running.claim
        tool = self._tools.get(claim.tool) or self._work.find(claim.tool)
        if self._leaving.is_set() or not self._work.audit.may_run:  # the claim began before that
            return await self._store(running, _Untouched())
        if tool is None:
            return await self._store(running, await self._without_tool(claim))
        self._lacking.pop(claim.task_id, None)
        segments = await self._segments(claim)
        running.outcome = None
        try:
            outcome: TaskOutcome | _Untouched = await run_task_leg(
                TaskLeg(
                    tool=tool,
                    arguments=claim.arguments,
                    principal=claim.principal,
                    capabilities=claim.capabilities,
                    journal=claim.journal,
                    segments=segments,
                    task_id=claim.task_id,
                ),
                keeper=running.keeper,
                host=self._work.host,
                failures=self._failures,
                policy=self._work.policy,
                notices=running.keeper,
                stepping=None if self._work.tracing is None else self._work.tracing.step,
            )
        except (LeaseLost, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - the task must end anyway
            outcome = _not_stored(claim, error)
        return await self._store(running, outcome)

    async def _segments(self, claim: Claim) -> list[Any]:
        if claim.segments == 0:
            return []
        return await outlast(partial(self._queue.segments, claim.owner, claim.task_id))

    async def _without_tool(self, claim: Claim) -> Finished | _Untouched:
        """Leave the task of an unknown tool to other workers for a while, then fail it."""
        now = time.monotonic()
        if now - self._lacking.setdefault(claim.task_id, now) < UNKNOWN_TOOL_SECONDS:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._leaving.wait(), UNKNOWN_TOOL_PAUSE_SECONDS)
            return _Untouched()
        del self._lacking[claim.task_id]
        log.error("no worker has the tool for a task", extra={"tool": claim.tool, "task": claim.task_id})
        return Finished(error=error_of(InternalError(f"The tool {claim.tool} is not available")))

    async def _store(self, running: _Running, outcome: TaskOutcome | _Untouched) -> LegEnd:
        """Store the outcome of a leg, or an error if that cannot be stored. Waits while the store is not available."""
        running.outcome, running.ending = outcome, True
        await running.keeper.flush()
        return await self._store_somehow(running.claim, outcome)

    async def _store_somehow(self, claim: Claim, outcome: TaskOutcome | _Untouched) -> LegEnd:
        try:
            return await self._store_as_it_is(claim, outcome)
        except LeaseLost:
            raise
        except Exception as error:  # noqa: BLE001 - the task must end anyway
            return await self._store_as_it_is(claim, _not_stored(claim, error))

    async def _store_as_it_is(self, claim: Claim, outcome: TaskOutcome | _Untouched) -> LegEnd:
        queue = self._queue
        if isinstance(outcome, Finished):
            await outlast(partial(queue.finish, claim, result=outcome.result, error=outcome.error))
            failed = outcome.error is not None or bool((outcome.result or {}).get("isError"))
            return LegEnd.FAILED if failed else LegEnd.COMPLETED
        if isinstance(outcome, Waiting):
            await outlast(partial(queue.wait, claim, outcome.questions, outcome.journal))
            return LegEnd.WAITING
        journal = claim.journal if isinstance(outcome, _Untouched) else outcome.journal
        await outlast(partial(queue.release, claim, journal))
        return LegEnd.HANDED_BACK

    async def _end_now(self, running: _Running) -> LegEnd:
        """Store the outcome of a leg that was cut off, and return its end. If that fails, its lease expires."""
        running.keeper.abandon()
        outcome = _cut_off(running.claim) if running.outcome is None else running.outcome
        with contextlib.suppress(LeaseLost, TimeoutError):
            return await asyncio.wait_for(self._store_somehow(running.claim, outcome), LAST_WRITES_SECONDS)
        return LegEnd.HANDED_BACK


def _cut_off(claim: Claim) -> Finished | _Untouched:
    """Return the outcome of a leg whose function was cut off.

    The task goes back with everything it had stored, and another worker runs the function from there. The lines since
    then run twice, so a task that may be tried only once ends instead, as if this worker was lost.
    """
    if claim.max_attempts > 1:
        return _Untouched()
    log.warning("task was cut off and may not run again", extra={"tool": claim.tool, "task": claim.task_id})
    return Finished(error=error_of(WorkersLost(claim.attempt)))


_INTERNAL: Final = Finished(error=error_of(InternalError("The task failed in the server")))


def _flow_of(claim: Claim) -> str:
    """Return the id of the call that a task continues; "" if it cannot be read."""
    return str(claim.journal.get("flow", ""))


def _not_stored(claim: Claim, error: Exception) -> Finished:
    """Return the error that ends a task whose outcome cannot be stored."""
    fields = {"tool": claim.tool, "task": claim.task_id}
    if isinstance(error, ValueTooLarge):
        log.warning("task tried to store more than is allowed", extra={**fields, "problem": str(error)})
        return Finished(result=failed_result(str(error)))
    log.error("task failed in the gateway itself", extra=fields, exc_info=error)
    return _INTERNAL
