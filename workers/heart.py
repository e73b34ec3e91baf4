"""Heartbeats and a watchdog, on a thread of their own: a tool that blocks the event loop stops neither."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Final

from gateway.errors import TaskStoreDown
from gateway.ports import Claim, Heartbeat, WorkQueue

log = logging.getLogger(__name__)

BEATS_PER_LEASE: Final = 3
TICKS_PER_BEAT: Final = 4
LONGEST_TICK_SECONDS: Final = 0.25
BLOCKED_SECONDS: Final = 1.0
"""The event loop is told to be blocked when it has not run for so long."""

_SHOWN_FRAMES: Final = 3


@dataclass(slots=True, eq=False)
class Beat:
    """A task whose lease is to be prolonged.

    Attributes:
        claim: the task.
        runner: the asyncio task that runs it.
        due: when to prolong it next, on the monotonic clock.
    """

    claim: Claim
    runner: asyncio.Task[None]
    due: float


class Heart:
    """Prolongs the leases of running tasks from its own thread, with its own connection.

    A worker whose event loop is blocked for longer than a lease keeps only the lease of the tool that blocks it: nobody
    else starts that one a second time, and all others go on with another worker. What this worker writes about those
    afterwards is refused.

    Args:
        make_queue: opens the connection; called on the thread.
        lease_seconds: how long a lease is.
        loop: the event loop to watch.
    """

    def __init__(
        self,
        make_queue: Callable[[], WorkQueue],
        lease_seconds: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._make_queue = make_queue
        self._lease_seconds = lease_seconds
        self._period = lease_seconds / BEATS_PER_LEASE
        self._tick = min(self._period / TICKS_PER_BEAT, LONGEST_TICK_SECONDS)
        self._loop = loop
        self._on_end: Callable[[Claim, Heartbeat], None] = lambda _claim, _told: None
        self._beats: dict[Claim, Beat] = {}
        self._watch = LoopWatch(loop, self._tick)
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="heart", daemon=True)

    def start(self, on_end: Callable[[Claim, Heartbeat], None]) -> None:
        """Start; called on the event loop that is watched.

        Args:
            on_end: told there which task may not go on, and why.
        """
        self._on_end = on_end
        self._watch.start()
        self._thread.start()

    async def stop(self) -> None:
        """Stop, and wait until the connection is closed."""
        self._stopped = True
        await self._loop.run_in_executor(None, self._thread.join)
        self._watch.stop()

    def add(self, claim: Claim, runner: asyncio.Task[None]) -> None:
        """Prolong a lease from now on."""
        self._beats[claim] = Beat(claim, runner, time.monotonic() + self._period)

    def remove(self, claim: Claim) -> None:
        """Leave a lease alone from now on."""
        self._beats.pop(claim, None)

    def _run(self) -> None:
        asyncio.run(self._beat())

    async def _beat(self) -> None:
        queue = self._make_queue()
        writes: set[asyncio.Task[None]] = set()
        try:
            while not self._stopped:
                await asyncio.sleep(self._tick)
                for beat in self._due():
                    beat.due = time.monotonic() + self._period
                    writes.add(write := asyncio.create_task(self._prolong(queue, beat)))
                    write.add_done_callback(writes.discard)
        finally:
            for write in writes:
                write.cancel()
            await queue.aclose()

    def _due(self) -> list[Beat]:
        """Return the tasks whose leases are to be prolonged now."""
        beats = list(self._beats.values())
        blocked_seconds = self._watch.look({beat.runner: beat.claim for beat in beats})
        if blocked_seconds > self._lease_seconds and self._watch.culprit is not None:
            beats = [beat for beat in beats if beat.claim is self._watch.culprit]
        now = time.monotonic()
        return [beat for beat in beats if beat.due <= now]

    async def _prolong(self, queue: WorkQueue, beat: Beat) -> None:
        try:
            told = await queue.heartbeat(beat.claim)
        except TaskStoreDown:
            beat.due = time.monotonic() + self._tick
            return
        if told is not Heartbeat.OK and beat.claim in self._beats:
            self.remove(beat.claim)
            self._loop.call_soon_threadsafe(self._on_end, beat.claim, told)


class LoopWatch:
    """Tells whether an event loop runs, and what blocks it if not.

    Args:
        loop: the loop.
        period: seconds between two signs of life.

    Attributes:
        culprit: the task that blocks it now, as far as known.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, period: float) -> None:
        self.culprit: Claim | None = None
        self._loop = loop
        self._period = period
        self._thread_id = threading.get_ident()
        self._seen_running = 0.0
        self._blocked_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to show signs of life; called on the loop's thread."""
        self._thread_id = threading.get_ident()
        self._show_life()

    def stop(self) -> None:
        """Show no more signs of life; called on the loop's thread."""
        if self._timer is not None:
            self._timer.cancel()

    def _show_life(self) -> None:
        self._seen_running = time.monotonic()
        self._timer = self._loop.call_later(self._period, self._show_life)

    def look(self, running: dict[asyncio.Task[None], Claim]) -> float:
        """Return for how many seconds the loop has been blocked, 0 if it runs; called on any other thread.

        Args:
            running: which asyncio task runs which task of ours.
        """
        seen = self._seen_running
        now = time.monotonic()
        if now - seen < self._period + BLOCKED_SECONDS:
            if self._blocked_since is not None:
                log.warning("event loop runs again", extra={"seconds": round(seen - self._blocked_since, 3)})
                self._blocked_since = self.culprit = None
            return 0.0
        if self._blocked_since is None:
            self._blocked_since = seen
            self._name_culprit(running)
        return now - self._blocked_since

    def _name_culprit(self, running: dict[asyncio.Task[None], Claim]) -> None:
        try:
            current = asyncio.current_task(self._loop)
        except RuntimeError:
            current = None
        self.culprit = None if current is None else running.get(current)
        fields = {"where": _where(sys._current_frames().get(self._thread_id))}  # noqa: SLF001 - documented for this
        if self.culprit is not None:
            fields |= {"tool": self.culprit.tool, "task": self.culprit.task_id}
        log.warning("a tool blocks the event loop", extra=fields)


def _where(frame: FrameType | None) -> str:
    """Tell what a thread is doing, the innermost call first."""
    places: list[str] = []
    while frame is not None and len(places) < _SHOWN_FRAMES:
        code = frame.f_code
        places.append(f"{code.co_name} ({code.co_filename}:{frame.f_lineno})")
        frame = frame.f_back
    return " < ".join(places)
