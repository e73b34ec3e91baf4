"""How many requests are worked on at once: a number that was set, or one that finds itself."""

from __future__ import annotations

from typing import Final, Protocol

FIRST: Final = 128
"""Where a replica begins: few enough to notice overload soon, enough for tools that mostly wait."""

LEAST: Final = 4
MOST: Final = 4096

_STEP: Final = 10
"""The limit rises by one part in this many."""

_COMFORTABLE: Final = 0.8
"""Above this share of the target the limit no longer rises, so that it comes to rest below the target."""

_DEEPEST_CUT: Final = 0.5

_FEW: Final = 2 * LEAST
"""With no more than this in flight, a long wait is a pause of something else, and nothing that a limit could mend."""

_SHARE_OF_LIMIT: Final = 2 / 3
"""Of all that may be in flight, this much is worked on; the rest waits for a place."""


class Limit(Protocol):
    """How many requests are worked on at once."""

    @property
    def value(self) -> int:
        """The limit now."""
        ...

    def adjust(self, wait_seconds: float, *, turn_seconds: float | None, highest: int, reached: bool) -> None:
        """Learn how the last moments were.

        Args:
            wait_seconds: how long the event loop kept requests waiting, 90th percentile.
            turn_seconds: how long a request had the event loop while another one was next in line, median; None if
                none ever was.
            highest: the most requests that were in flight at once.
            reached: whether the limit kept any of them waiting or out.
        """
        ...


class FixedLimit:
    """A limit that was set.

    Args:
        value: the limit, at least 1.
    """

    def __init__(self, value: int) -> None:
        self.value = value

    def adjust(self, wait_seconds: float, *, turn_seconds: float | None, highest: int, reached: bool) -> None:
        """Stay."""


class AdaptiveLimit:
    """A limit that rises in small steps while it holds requests back, and falls at once when they wait too long.

    Only the wait that the event loop causes counts. What waits for a place says that the limit is low, not that the
    replica is busy: a limit that fell because of it would never rise again.

    It never falls below what the loop gets through within the target, going by how long a request usually has it. So
    a pause, of the machine or of the garbage collector, does not make a replica refuse what it could well serve.

    Args:
        target_seconds: how long requests may wait for the event loop, 90th percentile.
    """

    def __init__(self, target_seconds: float) -> None:
        self.value = FIRST
        self._least = LEAST
        self._target = target_seconds

    def adjust(self, wait_seconds: float, *, turn_seconds: float | None, highest: int, reached: bool) -> None:
        """Come nearer to the most that can be worked on within the target."""
        if turn_seconds:
            self._least = min(max(LEAST, int(self._target / turn_seconds * _SHARE_OF_LIMIT)), MOST)
        if wait_seconds > self._target and highest > _FEW:
            # The wait grows with what is in flight, so their ratio tells how much would have been right.
            right = min(self.value, highest) * max(_DEEPEST_CUT, self._target / wait_seconds)
            self.value = min(int(right), self.value - 1)
        elif reached and wait_seconds < _COMFORTABLE * self._target:
            self.value = min(MOST, self.value + max(1, self.value // _STEP))
        self.value = max(self.value, self._least)
