"""Limits how many requests an upstream works on, so that a slow one takes nothing from the others."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
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
        self._places = places
        self._pace = None if rate is None else _Pace(rate)
        self._clock = clock
        self._on_change = on_change
        self._wait_seconds = wait_seconds
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.in_flight = 0

    @contextlib.asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold a place while the context is open.

        Raises:
            Overloaded: no place came free in time, too many requests wait, or the rate is used up. Nothing was sent.
        """
        self._keep_rate()
        await self._enter()
        try:
            yield
        finally:
            self._leave()

    def _keep_rate(self) -> None:
        early = 0.0 if self._pace is None else self._pace.take(self._clock())
        if early > 0:
            raise Overloaded(max(1, math.ceil(early)))

    async def _enter(self) -> None:
        if self.in_flight < self._places and not self._waiting:
            self._set(self.in_flight + 1)
            return
        if len(self._waiting) >= WAITING_FOR_EACH_PLACE * self._places:
            raise Overloaded
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(self._wait_seconds):
                await turn
        except BaseException as error:
            self._give_up(turn)
            if isinstance(error, TimeoutError):
                raise Overloaded from None
            raise

    def _give_up(self, turn: asyncio.Future[None]) -> None:
        """Withdraw a request that no longer waits; it may have received a place in the same moment."""
        if turn.done() and not turn.cancelled():
            self._leave()
        else:
            with contextlib.suppress(ValueError):
                self._waiting.remove(turn)

    def _leave(self) -> None:
        """Hand the place to the next request that waits, or free it."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._set(self.in_flight - 1)

    def _set(self, in_flight: int) -> None:
        self.in_flight = in_flight
        self._on_change(in_flight)


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
