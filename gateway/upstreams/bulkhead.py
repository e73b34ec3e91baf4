"""Limits how many requests an upstream works on, so that a slow one takes nothing from the others."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Hashable
from contextlib import AbstractAsyncContextManager
from typing import Final

from gateway.errors import Overloaded
from gateway.runtime.fairness import FairQueue
from gateway.settings.rates import Rate

WAIT_SECONDS: Final = 2.0
"""How long a request waits for a place."""

_ROUNDING_SECONDS: Final = 1e-6
"""The tolerance for rounding errors in sums of times."""

WAITING_FOR_EACH_PLACE: Final = 4
"""How many requests may wait for each place. More of them are refused at once."""


RESERVE: Final = 8
"""One place of this many, at least one of several, is for callers that hold less than half of the places."""


class Bulkhead:
    """The places of one upstream, given to the callers that wait in turn.

    A caller that holds half of the places gets none while others wait, and never the last ones. Of the room to wait in,
    a caller gets no more than it leaves free. This does not hold for anonymous callers, who count as one.

    `on_change` is called with the number of requests in flight, when it changes. Of the places, `common` ones are those
    of no caller: they are not shared.
    """

    def __init__(
        self,
        places: int,
        rate: Rate | None,
        on_change: Callable[[int], None],
        *,
        wait_seconds: float = WAIT_SECONDS,
        common: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._places = places
        self._reserve = max(1, places // RESERVE) if places > 1 else 0
        self._most_waiting = WAITING_FOR_EACH_PLACE * places
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue()
        self._pace = None if rate is None else _Pace(rate)
        self._next_turn: asyncio.TimerHandle | None = None
        self._clock = clock
        self._on_change = on_change
        self._wait_seconds = wait_seconds
        self._common = common
        self.in_flight = 0

    def place(self, caller: Hashable) -> AbstractAsyncContextManager[None]:
        """Hold a place of a caller while the context is open. The anonymous caller is None.

        Raises:
            Overloaded: no place came free in time, too many requests wait, or the rate is used up. Nothing was sent.
        """
        return _Place(self, caller)

    def held_by(self, caller: Hashable) -> int:
        """Return how many places a caller holds."""
        return self._queue.held_by(caller)

    async def enter(self, caller: Hashable, before_waiting: Callable[[], object] = lambda: None) -> None:
        """Wait for a place and for the rate, with the other callers in turn. `leave` gives it back.

        `before_waiting` is called if there is no place at once.
        """
        if self._pace is None and not self._queue.size and self.in_flight < self._places - self._reserve:
            self._queue.take(caller)  # as `_fill` would: nobody waits, and more than the reserve is free
            self._count(1)
            return
        self._check_room(caller)
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.add(caller, place)
        self._fill()
        if place.done():
            return
        before_waiting()
        try:
            async with asyncio.timeout(self._wait_seconds):
                await place
        except BaseException as error:
            if place.done() and not place.cancelled():  # the place was given to a request that is gone
                self.leave(caller)
            else:
                self._queue.remove(caller, place)
            if isinstance(error, TimeoutError):
                raise Overloaded from None
            raise

    def _check_room(self, caller: Hashable) -> None:
        early = 0.0 if self._pace is None else self._pace.early(self._clock())
        if early > self._wait_seconds:
            raise Overloaded(max(1, math.ceil(early)))
        room, own = self._most_waiting - self._queue.size, self._queue.waiting_of(caller)
        if room <= 0 or (caller is not None and own > 0 and own >= room):
            raise Overloaded

    def leave(self, caller: Hashable) -> None:
        """Give a place of a caller to the next request."""
        self._queue.free(caller)
        self._count(-1)
        self._fill()

    def _fill(self) -> None:
        """Give free places to waiting requests, as far as the rate allows."""
        while self._queue.size and self.in_flight < self._places:
            if not self._is_time():
                return
            given = self._queue.next(self._places - self._common(), only_below_share=self._is_reserved)
            if given is None:
                return
            caller, place = given
            if place.done():  # the request is gone
                self._queue.free(caller)
                continue
            if self._pace is not None:
                self._pace.take(self._clock())
            self._count(1)
            place.set_result(None)

    @property
    def _is_reserved(self) -> bool:
        """Whether only places in reserve are left, for others than a caller that has its share."""
        return self.in_flight >= self._places - self._reserve and not self._queue.waiting_of(None)

    def _is_time(self) -> bool:
        """Return whether the rate allows a request now. If not, the places are looked at again when it does."""
        early = 0.0 if self._pace is None else self._pace.early(self._clock())
        if early <= 0:
            return True
        if self._next_turn is None:
            self._next_turn = asyncio.get_running_loop().call_later(early, self._take_turn)
        return False

    def _take_turn(self) -> None:
        self._next_turn = None
        self._fill()

    def _count(self, requests: int) -> None:
        self.in_flight += requests
        self._on_change(self.in_flight)


class _Place:
    """A place of a caller. For a request that does not wait, this takes half the time of a generator."""

    __slots__ = ("_bulkhead", "_caller")

    def __init__(self, bulkhead: Bulkhead, caller: Hashable) -> None:
        self._bulkhead = bulkhead
        self._caller = caller

    async def __aenter__(self) -> None:
        await self._bulkhead.enter(self._caller)

    async def __aexit__(self, *_: object) -> None:
        self._bulkhead.leave(self._caller)


class _Pace:
    """A rate with bursts, stored as the time when as many requests as possible may come at once again."""

    def __init__(self, rate: Rate) -> None:
        self._interval = rate.seconds / rate.requests
        self._slack = (rate.burst - 1) * self._interval + _ROUNDING_SECONDS
        self._full_at = 0.0

    def early(self, now: float) -> float:
        """Return in how many seconds a request may start; 0 or less means now."""
        return max(self._full_at, now) - now - self._slack

    def take(self, now: float) -> None:
        """Count a request that starts now."""
        self._full_at = max(self._full_at, now) + self._interval
