"""A tool that tells for how long its event loop stopped."""

from __future__ import annotations

import asyncio
import time

from gateway import tool

BEAT_SECONDS = 0.001


class Heart:
    """Beats on an event loop. `longest` is the longest time between two beats in which this process worked.

    If the machine is busy with other processes, the time between two beats is longer than the CPU time in it.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self._beat_at, self._worked = time.monotonic(), time.process_time()
        self._beat()

    def _beat(self) -> None:
        now, worked = time.monotonic(), time.process_time()
        self.longest = max(self.longest, min(now - self._beat_at, worked - self._worked))
        self._beat_at, self._worked = now, worked
        asyncio.get_running_loop().call_later(BEAT_SECONDS, self._beat)


_hearts: list[Heart] = []


@tool
async def longest_stop() -> str:
    """Return for how many seconds the event loop has stopped at most since the last call."""
    if not _hearts:
        _hearts.append(Heart())
    longest, _hearts[0].longest = _hearts[0].longest, 0.0
    return str(longest)
