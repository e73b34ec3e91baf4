"""Which legs are shed, so that another replica continues their calls: because of a drain, or because requests wait."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

LONGEST_WINDOW_SECONDS: Final = 1.0
"""Waiting times that are older say nothing about now."""

_PERCENTILE: Final = 0.9


class LoadShedding:
    """Decides at checkpoints whether a leg should end there.

    `target_seconds` is how long requests may wait, from their headers to their leg, 90th percentile. Above it, legs are
    shed. `clock` returns seconds that never go back.

    Attributes:
        waits: how long each request waited in total until its leg began, in seconds, since they were judged.
    """

    def __init__(self, target_seconds: float, clock: Callable[[], float]) -> None:
        self.target_seconds: Final = target_seconds
        self.waited_p90 = 0.0
        self._draining_since = math.inf
        self._notice_is_over = False
        self._clock = clock
        self.waits: list[float] = []
        self._judged_at = clock()
        self._wanted = 0

    @property
    def draining(self) -> bool:
        """Whether every leg is shed because of a drain."""
        return self._draining_since < math.inf

    def drain(self) -> None:
        """Shed every running leg at its next checkpoint."""
        self._draining_since = self._clock()

    def end_notice(self) -> None:
        """Shed every leg, including those that arrived before load balancers noticed the drain."""
        self._notice_is_over = True

    def judge(self, now: float, highest: int) -> None:
        """Evaluate the waits since the last time, while `highest` requests were in flight at most."""
        self.waited_p90 = wait = percentile(self.waits)
        # The number of legs in excess of the target; the first ones to reach a checkpoint are shed.
        excess = 1 - self.target_seconds / wait if wait > self.target_seconds else 0.0
        self._wanted = math.ceil(highest * excess)
        self.waits.clear()
        self._judged_at = now

    def wait_p90(self) -> float:
        """Return the longer 90th percentile of the waits that were judged last and of those since, in seconds."""
        return max(self.waited_p90, percentile(self.waits))

    def wants_shed(self, began: float) -> bool:
        """Return whether a leg should end at its checkpoint, so another replica can continue the call.

        A leg that has hardly begun is cheaper to finish than to shed, unless the replica is draining. A leg that began
        after the drain is kept until the notice is over. The balancer that sent it here could do so again, and a call
        can be shed only a few times. `began` is a time on the clock.
        """
        if self.draining:
            return self._notice_is_over or began <= self._draining_since
        now = self._clock()
        if self._wanted <= 0 or now - began < self.target_seconds:
            return False
        if now - self._judged_at > LONGEST_WINDOW_SECONDS:
            return False  # no request has waited since
        self._wanted -= 1
        return True


def percentile(waits: list[float]) -> float:
    """Return the 90th percentile, 0 if there are no waits."""
    return sorted(waits)[int(len(waits) * _PERCENTILE)] if waits else 0.0
