"""Requests per caller: a token bucket each."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

from gateway.errors import RateLimited
from gateway.settings.rates import Rate

MAX_CALLERS: Final = 16_384
"""How many buckets are kept. Whoever has not called for longest is forgotten first, and so starts afresh."""

_ROUNDING_SECONDS: Final = 1e-6
"""What sums of times may be off by."""


class RateLimiter:
    """Lets each caller send at a rate, and a burst at once.

    A bucket is kept as one number, the time when it will be full again (the generic cell rate algorithm, which
    decides exactly as a token bucket does). A refused request takes nothing out of it. Every decision takes the
    same short time, and at most `max_callers` buckets are kept, whoever calls.

    Args:
        rate: what each caller may send.
        clock: seconds that never go back.
        max_callers: how many buckets are kept.
    """

    def __init__(self, rate: Rate, clock: Callable[[], float], max_callers: int = MAX_CALLERS) -> None:
        self._interval = rate.seconds / rate.requests
        self._slack = (rate.burst - 1) * self._interval + _ROUNDING_SECONDS
        self._clock = clock
        self._max_callers = max_callers
        self._full_at: OrderedDict[Hashable, float] = OrderedDict()

    def __len__(self) -> int:
        """Return how many buckets are kept."""
        return len(self._full_at)

    def admit(self, caller: Hashable) -> None:
        """Count one request of a caller.

        Raises:
            RateLimited: the bucket is empty; the error says when the next request may come.
        """
        now = self._clock()
        full_at = max(self._full_at.get(caller, now), now)
        early = full_at - now - self._slack
        if early > 0:
            raise RateLimited(max(1, math.ceil(early)))
        self._full_at[caller] = full_at + self._interval
        self._full_at.move_to_end(caller)
        self._forget(now)

    def _forget(self, now: float) -> None:
        """Drop a bucket that is full again, as one that never was is full too; or the oldest, if there are too many."""
        oldest, full_at = next(iter(self._full_at.items()))
        if full_at <= now or len(self._full_at) > self._max_callers:
            del self._full_at[oldest]
