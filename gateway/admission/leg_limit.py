"""How many requests are processed at once: a fixed number, or one that adapts."""

from __future__ import annotations

from typing import Final, Protocol

FIRST: Final = 128
"""The initial limit: low enough to notice overload soon, high enough for tools that mostly wait."""

LEAST: Final = 4
MOST: Final = 4096

_STEP: Final = 10
"""The limit rises by this fraction: one part in ten."""

_COMFORTABLE: Final = 0.8
"""Above this share of the target the limit no longer rises, so it settles below the target."""

_DEEPEST_CUT: Final = 0.5

_FEW: Final = 2 * LEAST
"""With so few requests in flight, a long wait has another cause, which no limit can fix."""

_RESERVE: Final = 8
"""The places in reserve: one for this many places of the limit."""

_SHARE_OF_LIMIT: Final = 2 / 3
"""The share of the requests in flight that is processed; the rest waits for a place."""


class Limit(Protocol):
    """How many requests are processed at once."""

    @property
    def value(self) -> int:
        """The limit now."""
        ...

    @property
    def reserve(self) -> int:
        """How many more requests are processed of callers that hold less than their share."""
        ...

    def adjust(
        self, wait_seconds: float, *, turn_seconds: float | None, highest: int, running: int, reached: bool
    ) -> None:
        """Adjust to the last window.

        Args:
            wait_seconds: how long requests waited for the event loop, 90th percentile.
            turn_seconds: how long a request used the event loop while another one was next in line, median; None if
                none was.
            highest: the most requests that were in flight at once.
            running: how many are processed at its end.
            reached: whether the limit made any of them wait or refused them.
        """
        ...


class FixedLimit:
    """A fixed limit of at least 1, which is never exceeded."""

    def __init__(self, value: int) -> None:
        self.value = value
        self.reserve = 0

    def adjust(
        self, wait_seconds: float, *, turn_seconds: float | None, highest: int, running: int, reached: bool
    ) -> None:
        """Do nothing."""


class AdaptiveLimit:
    """A limit that rises in small steps while it holds requests back, and falls at once when they wait too long.

    Only the wait for the event loop counts. A wait for a place shows that the limit is low, not that the replica is
    busy: a limit that fell because of it would never rise again.

    Requests that only wait do not hold a limit that has fallen. If more are running than the limit allows, and nothing
    waits for the loop, the limit rises above their number at once.

    The limit never falls below what the loop can process within the target, judging by how long a request usually uses
    it. So a pause of the machine or the garbage collector does not make a replica refuse requests that it could serve.

    `target_seconds` is how long requests may wait for the event loop, 90th percentile.
    """

    def __init__(self, target_seconds: float) -> None:
        self.value = FIRST
        self._least = LEAST
        self._target = target_seconds

    @property
    def reserve(self) -> int:
        """One place for each eight of the limit."""
        return max(LEAST, self.value // _RESERVE)

    def adjust(
        self, wait_seconds: float, *, turn_seconds: float | None, highest: int, running: int, reached: bool
    ) -> None:
        """Move towards the most requests that can be processed within the target."""
        if turn_seconds:
            self._least = min(max(LEAST, int(self._target / turn_seconds * _SHARE_OF_LIMIT)), MOST)
        if wait_seconds > self._target and highest > _FEW:
            # The wait grows with the requests in flight, so the ratio of target and wait gives the right number.
            right = min(self.value, highest) * max(_DEEPEST_CUT, self._target / wait_seconds)
            self.value = min(int(right), self.value - 1)
        elif reached and wait_seconds < _COMFORTABLE * self._target:
            # Requests that run beyond the limit do not keep the loop busy, so they wait for something else.
            self.value = min(MOST, max(self.value, running) + max(1, self.value // _STEP))
        self.value = max(self.value, self._least)
