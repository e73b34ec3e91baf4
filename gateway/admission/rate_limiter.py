"""The request rate of each caller: one token bucket each."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

from gateway.errors import RateLimited
from gateway.settings.rates import Rate

MAX_CALLERS: Final = 16_384
"""How many buckets are kept. The caller that was inactive longest is forgotten first, and then starts with a full
bucket."""

_ROUNDING_SECONDS: Final = 1e-6
"""The tolerance for rounding errors in sums of times."""


class RateLimiter:
    """Limits each caller to a rate, and allows bursts.

    A bucket is stored as one number, the time when it will be full again (the generic cell rate algorithm, which
    decides exactly as a token bucket does). A refused request takes nothing from it. Every decision takes the same
    short time, and at most `max_callers` buckets are kept. `clock` returns seconds that never go back.
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
            RateLimited: the bucket is empty; the error says when the next request is allowed.
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
        """Drop the oldest bucket if it is full again, as a missing one counts as full, or if there are too many."""
        oldest, full_at = next(iter(self._full_at.items()))
        if full_at <= now or len(self._full_at) > self._max_callers:
            del self._full_at[oldest]
