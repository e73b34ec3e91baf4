"""What a running task has learned goes to the store: steps and segments at once, the rest now and then."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from gateway.engine.journal import Checkpoint
from gateway.errors import LeaseLost, ValueTooLarge
from gateway.tasks.model import Progress
from gateway.tasks.ports import Claim, Kept, WorkQueue
from gateway_workers.retry import outlast

CHECKPOINT_SECONDS: Final = 1.0
"""A checkpoint is written no more often than this."""

PROGRESS_SECONDS: Final = 0.25
"""Progress is told no more often than this."""


class TaskKeeper:
    """Keeps what one leg of a task learns; satisfies `gateway.engine.host.Keeper` and `Notices`.

    Writes wait for a store that is away; a lost lease raises, and so does what the store will never take. What is held
    back (checkpoints within a second, progress) is written by a timer, with the next thing that must be written, or by
    `flush`.

    Args:
        queue: where to.
        claim: the task; its journal is kept up to date here with what has been written.
        leaving: tells whether the worker wants to hand its tasks back.
        on_lost: told when the timer finds the lease lost.
    """

    def __init__(
        self,
        queue: WorkQueue,
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
        """Keep the result of a step; it is durable when this returns."""
        await self._write({key: value})

    async def keep_emit(self, number: int, block: dict[str, Any]) -> None:
        """Keep the `number`-th block; it is durable when this returns."""
        async with self._one_at_a_time:
            await outlast(partial(self._queue.emit, self._claim, number, block))

    async def keep_checkpoint(self, checkpoint: Checkpoint) -> bool:
        """Keep a checkpoint, within a second; True asks the leg to end here."""
        self._checkpoint = checkpoint.to_map()
        if self._leaving():
            return True
        if self._loop.time() >= self._checkpoint_at + CHECKPOINT_SECONDS:
            await self._write({})
        else:
            self._set_timer()
        return False

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Tell how far the task is, soon. May be called from any thread."""
        self._progress = Progress(done, total, message)
        self._loop.call_soon_threadsafe(self._set_timer)

    def log(self, level: str, data: Any, logger: str | None) -> None:
        """Drop a message: a task has nowhere to send it (ext-tasks, Task Status Notifications)."""

    async def flush(self) -> None:
        """Write what is held back, and hold nothing back any more; before the task changes hands."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._progress is not None or self._timed_write is not None:
            with contextlib.suppress(ValueTooLarge):  # what comes next brings the journal, and is told
                await self._write({})

    def abandon(self) -> None:
        """Write nothing any more."""
        self._closed = True
        self._progress = None
        for pending in (self._timer, self._timed_write):
            if pending is not None:
                pending.cancel()

    async def _write(self, steps: dict[str, Any]) -> None:
        async with self._one_at_a_time:
            checkpoint, progress = self._due_checkpoint(), self._progress
            if not steps and checkpoint is None and progress is None:
                return
            kept = Kept(steps=steps, checkpoint=checkpoint, progress=progress)
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
        """Have what is held back written when it is due."""
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
            # Nobody waits for this write. The tool is told by the next thing that it keeps.
            self._checkpoint = self._progress = None
        finally:
            self._timed_write = None
            self._set_timer()
