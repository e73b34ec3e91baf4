"""Stores what a running task learns: steps, segments and the slot at once, the rest at intervals."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from gateway.engine.journal import Checkpoint
from gateway.errors import LeaseLost, ValueTooLarge
from gateway.storage import RedisWorkQueue
from gateway.tasks.model import Progress
from gateway.tasks.ports import Claim, Kept
from gateway_workers.retry import outlast

CHECKPOINT_SECONDS: Final = 1.0
"""The shortest time between two writes of a checkpoint."""

PROGRESS_SECONDS: Final = 0.25
"""The shortest time between two writes of progress."""


class TaskWriter:
    """Stores what one leg of a task learns; satisfies `gateway.engine.host.Keeper` and `Notices`.

    Writes wait for a store that is not available. They raise if the lease is lost, or if the store will never accept
    the value. Checkpoints within a second, and progress, are held back until a timer, the next write or `flush` writes
    them.

    The keeper updates the claim's journal with everything that it writes. `leaving` returns whether the worker wants to
    hand back its tasks. `on_lost` is called if the timer finds that the lease is lost.
    """

    def __init__(
        self,
        queue: RedisWorkQueue,
        claim: Claim,
        leaving: Callable[[], bool],
        on_lost: Callable[[LeaseLost], None],
    ) -> None:
        self._queue = queue
        self._claim = claim
        self._leaving = leaving
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._one_at_a_time = asyncio.Lock()
        self._checkpoint: dict[str, Any] | None = None
        self._progress: Progress | None = None
        self._checkpoint_at = self._progress_at = self._loop.time() - CHECKPOINT_SECONDS
        self._timer: asyncio.TimerHandle | None = None
        self._timed_write: asyncio.Task[None] | None = None
        self._closed = False

    async def keep_step(self, key: str, value: Any) -> None:
        """Store the result of a step. It is durable when this returns."""
        await self._write({key: value})

    async def keep_emit(self, number: int, block: dict[str, Any]) -> None:
        """Store block `number`. It is durable when this returns."""
        async with self._one_at_a_time:
            await outlast(partial(self._queue.emit, self._claim, number, block))

    async def keep_checkpoint(self, checkpoint: Checkpoint) -> bool:
        """Store a checkpoint within a second. Return True to ask the leg to end here."""
        self._checkpoint = checkpoint.to_map()
        if self._leaving():
            return True
        if self._loop.time() >= self._checkpoint_at + CHECKPOINT_SECONDS:
            await self._write({})
        else:
            self._set_timer()
        return False

    async def keep_slot(self, slot: dict[str, Any]) -> None:
        """Store where a relay stands. It is durable when this returns."""
        await self._write({}, slot)

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Report progress soon. Any thread may call this."""
        self._progress = Progress(done, total, message)
        self._loop.call_soon_threadsafe(self._set_timer)

    def log(self, level: str, data: Any, logger: str | None) -> None:
        """Drop a message: a task has nowhere to send it (ext-tasks, Task Status Notifications)."""

    async def flush(self) -> None:
        """Write everything that was held back, and stop the timer. Called before the task changes hands."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._progress is not None or self._timed_write is not None:
            with contextlib.suppress(ValueTooLarge):  # the next write contains the journal, and raises it
                await self._write({})

    def abandon(self) -> None:
        """Stop writing."""
        self._closed = True
        self._progress = None
        for pending in (self._timer, self._timed_write):
            if pending is not None:
                pending.cancel()

    async def _write(self, steps: dict[str, Any], slot: dict[str, Any] | None = None) -> None:
        async with self._one_at_a_time:
            checkpoint, progress = self._due_checkpoint(), self._progress
            if not steps and slot is None and checkpoint is None and progress is None:
                return
            kept = Kept(steps=steps, checkpoint=checkpoint, slot=slot, progress=progress)
            await outlast(partial(self._queue.keep, self._claim, kept))
            self._note_written(kept)

    def _due_checkpoint(self) -> dict[str, Any] | None:
        due = self._loop.time() >= self._checkpoint_at + CHECKPOINT_SECONDS
        return self._checkpoint if due else None

    def _note_written(self, kept: Kept) -> None:
        now = self._loop.time()
        journal = self._claim.journal
        if kept.steps:
            journal["steps"] = {**journal.get("steps", {}), **kept.steps}
        if kept.slot is not None:
            journal["slot"] = kept.slot
        if kept.checkpoint is not None:
            journal["checkpoint"] = kept.checkpoint
            self._checkpoint_at = now
            if self._checkpoint is kept.checkpoint:
                self._checkpoint = None
        if kept.progress is not None:
            journal["progress"] = kept.progress.done
            self._progress_at = now
            if self._progress is kept.progress:
                self._progress = None
        self._set_timer()

    def _set_timer(self) -> None:
        """Schedule the write of what is held back."""
        if self._closed or self._timer is not None or self._timed_write is not None:
            return
        due = []
        if self._checkpoint is not None:
            due.append(self._checkpoint_at + CHECKPOINT_SECONDS)
        if self._progress is not None:
            due.append(self._progress_at + PROGRESS_SECONDS)
        if due:
            self._timer = self._loop.call_at(min(due), self._start_timed_write)

    def _start_timed_write(self) -> None:
        self._timer = None
        self._timed_write = self._loop.create_task(self._write_in_time())

    async def _write_in_time(self) -> None:
        try:
            await self._write({})
        except LeaseLost as lost:
            self._closed = True
            self._on_lost(lost)
        except ValueTooLarge:
            # Nobody waits for this write. The tool gets the error when it stores something next.
            self._checkpoint = self._progress = None
        finally:
            self._timed_write = None
            self._set_timer()
