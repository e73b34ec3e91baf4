"""Limits how many requests an upstream works on, so that a slow one takes nothing from the others."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable
from typing import Final

from gateway.errors import Overloaded
from gateway.settings.rates import Rate

WAIT_SECONDS: Final = 2.0
"""How long a request waits for a place."""

_ROUNDING_SECONDS: Final = 1e-6
"""The tolerance for rounding errors in sums of times."""

WAITING_FOR_EACH_PLACE: Final = 4
"""How many requests may wait for each place. More of them are refused at once."""


class Bulkhead:
    """The places of one upstream, given out in the order in which requests ask for them.

    `on_change` is called with the number of requests in flight, when it changes.
    """

    def __init__(
        self,
        places: int,
        rate: Rate | None,
        on_change: Callable[[int], None],
        *,
        wait_seconds: float = WAIT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._free = asyncio.Semaphore(places)  # it serves in the order of arrival
        self._most_waiting = WAITING_FOR_EACH_PLACE * places
        self._waiting = 0
        self._pace = None if rate is None else _Pace(rate)
        self._clock = clock
        self._on_change = on_change
        self._wait_seconds = wait_seconds
        self.in_flight = 0

    @contextlib.asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold a place while the context is open.

        Raises:
            Overloaded: no place came free in time, too many requests wait, or the rate is used up. Nothing was sent.
        """
        self._keep_rate()
        await self._enter()
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)
            self._free.release()

    def _keep_rate(self) -> None:
        early = 0.0 if self._pace is None else self._pace.take(self._clock())
        if early > 0:
            raise Overloaded(max(1, math.ceil(early)))

    async def _enter(self) -> None:
        if self._free.locked() and self._waiting >= self._most_waiting:
            raise Overloaded
        self._waiting += 1
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._free.acquire()
        except TimeoutError:
            raise Overloaded from None
        finally:
            self._waiting -= 1

    def _count(self, requests: int) -> None:
        self.in_flight += requests
        self._on_change(self.in_flight)


class _Pace:
    """A rate with bursts, stored as the time when as many requests as possible may come at once again."""

    def __init__(self, rate: Rate) -> None:
        self._interval = rate.seconds / rate.requests
        self._slack = (rate.burst - 1) * self._interval + _ROUNDING_SECONDS
        self._full_at = 0.0

    def take(self, now: float) -> float:
        """Count a request that starts now; or count nothing and return in how many seconds it may start."""
        full_at = max(self._full_at, now)
        early = full_at - now - self._slack
        if early <= 0:
            self._full_at = full_at + self._interval
        return early
