"""Sends heartbeats from a separate thread, so a tool that blocks the event loop does not stop them, and is logged."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from gateway.errors import TaskStoreDown
from gateway.process.watchdog import LoopWatch
from gateway.storage import RedisWorkQueue
from gateway.tasks.ports import Claim, Heartbeat

BEATS_PER_LEASE: Final = 3
TICKS_PER_BEAT: Final = 4
LONGEST_TICK_SECONDS: Final = 0.25


@dataclass(slots=True, eq=False)
class Beat:
    """A task whose lease the heart prolongs.

    `due` is when to prolong the lease next, on the monotonic clock.
    """

    claim: Claim
    runner: asyncio.Task[None]
    due: float


class Heart:
    """Prolongs the leases of running tasks from its own thread, with its own connection.

    If the event loop is blocked for longer than a lease, only the task that blocks it keeps its lease, so no other
    worker starts it a second time. All other tasks continue at other workers, and the store refuses what this worker
    writes about them later. `make_queue` opens the connection; it is called on the thread.
    """

    def __init__(
        self,
        make_queue: Callable[[], RedisWorkQueue],
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
        self._watch = LoopWatch(loop, self._tick, self._describe)
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="heart", daemon=True)

    def start(self, on_end: Callable[[Claim, Heartbeat], None]) -> None:
        """Start; called on the watched event loop.

        `on_end` is called there with each task that must not continue, and the reason.
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
        """Start prolonging a lease."""
        self._beats[claim] = Beat(claim, runner, time.monotonic() + self._period)

    def remove(self, claim: Claim) -> None:
        """Stop prolonging a lease."""
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
        """Return the tasks whose leases are due."""
        beats = list(self._beats.values())
        if self._watch.look() > self._lease_seconds:
            beats = [beat for beat in beats if beat.runner is self._watch.blocker] or beats
        now = time.monotonic()
        return [beat for beat in beats if beat.due <= now]

    def _describe(self, blocker: asyncio.Task[object]) -> Mapping[str, str]:
        """Return the log field that names the task of a blocking runner."""
        beats = list(self._beats.values())
        return next(({"task": beat.claim.task_id} for beat in beats if beat.runner is blocker), {})

    async def _prolong(self, queue: RedisWorkQueue, beat: Beat) -> None:
        try:
            told = await queue.heartbeat(beat.claim)
        except TaskStoreDown:
            beat.due = time.monotonic() + self._tick
            return
        if told is not Heartbeat.OK and beat.claim in self._beats:
            self.remove(beat.claim)
            self._loop.call_soon_threadsafe(self._on_end, beat.claim, told)
