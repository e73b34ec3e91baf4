"""Stops calling an upstream that nobody can reach, and finds out by requests of its own when it works again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

FAILURES: Final = 5
"""How many requests in a row must fail for a reason that concerns everybody, before the upstream is probed."""

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 30.0

Probe: TypeAlias = Callable[[], Awaitable[bool]]
"""Asks the upstream something that depends on no caller. Returns whether anybody can reach it."""


class Breaker:
    """Counts the failures of one upstream that concern everybody. After several in a row it probes the upstream itself.

    It opens only if the probe fails too, so no caller can open it by its calls. While it is open, requests are refused,
    and further probes follow with pauses that double. `on_change` is called with whether the breaker is open, when
    that changes. Nothing opens it while `run` does not run.
    """

    def __init__(
        self,
        probe: Probe,
        on_change: Callable[[bool], None],
        *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._probe = probe
        self._on_change = on_change
        self._pause = pause
        self._failures = 0
        self._is_suspected = asyncio.Event()
        self.is_open = False

    def succeeded(self) -> None:
        """Note that the upstream has answered, also if it answered with an error of its own."""
        self._failures = 0

    def failed(self) -> None:
        """Note that a request has failed for a reason that concerns everybody."""
        self._failures += 1
        if self._failures >= FAILURES:
            self._is_suspected.set()

    async def run(self) -> None:
        """Probe the upstream when that is needed, until cancelled."""
        try:
            while True:
                await self._is_suspected.wait()
                await self._probe_until_it_works()
                self._failures = 0
                self._is_suspected.clear()
        finally:
            self.is_open = False  # nobody would close it

    async def _probe_until_it_works(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while not await self._probe():
            self._set(is_open=True)
            await self._pause(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        if self.is_open:
            self._set(is_open=False)
        else:
            await self._pause(FIRST_PAUSE_SECONDS)  # a caller whose calls fail causes no more probes than that

    def _set(self, *, is_open: bool) -> None:
        if self.is_open != is_open:
            self.is_open = is_open
            self._on_change(is_open)
