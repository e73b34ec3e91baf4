"""Fair shares of places that run out: who holds how many, who waits, and whose turn it is.

Whoever is alone may hold every place. While others wait, a caller that holds half of the places or more gets no further
one, and all others get theirs in turn. Nothing here waits or wakes anybody: that is left to whoever owns the places.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class FairQueue(Generic[T]):
    """Counts the places that callers hold, and lines up what waits for one.

    What it remembers is bounded by the places that are held and by what waits.

    Attributes:
        size: how many wait.
    """

    __slots__ = ("_first", "_held", "_rest", "_waiting", "size")

    def __init__(self) -> None:
        self.size = 0
        self._held: dict[Hashable, int] = {}
        self._first: OrderedDict[Hashable, OrderedDict[T, None]] = OrderedDict()
        self._rest: OrderedDict[Hashable, OrderedDict[T, None]] = OrderedDict()
        self._waiting: dict[Hashable, int] = {}

    @property
    def callers(self) -> int:
        """How many callers wait."""
        return len(self._waiting)

    def held_by(self, caller: Hashable) -> int:
        """Return how many places a caller holds."""
        return self._held.get(caller, 0)

    def waiting_of(self, caller: Hashable) -> int:
        """Return how many places a caller waits for."""
        return self._waiting.get(caller, 0)

    def take(self, caller: Hashable) -> None:
        """Note that a caller holds one more place."""
        self._held[caller] = self._held.get(caller, 0) + 1

    def free(self, caller: Hashable) -> None:
        """Note that a caller holds one place less."""
        left = self._held[caller] - 1
        if left:
            self._held[caller] = left
        else:
            del self._held[caller]

    def add(self, caller: Hashable, item: T, *, first: bool = False) -> None:
        """Let something of a caller wait.

        Args:
            caller: whose it is.
            item: what waits; equal to nothing else that waits.
            first: whether it goes before everything that does not.
        """
        lines = self._first if first else self._rest
        line = lines.get(caller)
        if line is None:
            line = lines[caller] = OrderedDict()
        line[item] = None
        self._waiting[caller] = self._waiting.get(caller, 0) + 1
        self.size += 1

    def remove(self, caller: Hashable, item: T) -> None:
        """Forget something that waits; nothing happens if it does not wait any more."""
        for lines in (self._first, self._rest):
            line = lines.get(caller)
            if line is not None and item in line:
                del line[item]
                if not line:
                    del lines[caller]
                self._gone(caller)
                return

    def next(self, places: int) -> tuple[Hashable, T] | None:
        """Take out what is to have the next place, and count that place as its caller's; None if nothing waits.

        Args:
            places: how many there are now, taken ones included. Half of them are a caller's share.
        """
        share = max(1, places // 2)
        for lines in (self._first, self._rest):
            # No more than a few callers can hold a share, so this looks at no more than a few.
            for caller in lines:
                if self._held.get(caller, 0) < share:
                    return self._take_out(lines, caller)
        for lines in (self._first, self._rest):
            for caller in lines:
                return self._take_out(lines, caller)
        return None

    def _take_out(self, lines: OrderedDict[Hashable, OrderedDict[T, None]], caller: Hashable) -> tuple[Hashable, T]:
        line = lines[caller]
        item, _ = line.popitem(last=False)
        if line:
            lines.move_to_end(caller)
        else:
            del lines[caller]
        self._gone(caller)
        self.take(caller)
        return caller, item

    def _gone(self, caller: Hashable) -> None:
        self.size -= 1
        left = self._waiting[caller] - 1
        if left:
            self._waiting[caller] = left
        else:
            del self._waiting[caller]
