"""Fair shares of scarce places: how many each caller holds, which callers wait, and whose turn it is.

A caller that is alone may hold every place. While others wait, a caller that holds at least half of the places gets no
more, and the others take turns. This module only keeps the books; the owner of the places does the waiting and waking.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class FairQueue(Generic[T]):
    """Counts the places that callers hold, and queues the items that wait for one.

    Its memory is bounded by the number of held places and waiting items. `size` is how many items wait.
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
        """Record that a caller holds one more place."""
        self._held[caller] = self._held.get(caller, 0) + 1

    def free(self, caller: Hashable) -> None:
        """Record that a caller holds one place less."""
        left = self._held[caller] - 1
        if left:
            self._held[caller] = left
        else:
            del self._held[caller]

    def add(self, caller: Hashable, item: T, *, first: bool = False) -> None:
        """Queue an item of a caller.

        The item must differ from all other waiting items. If `first`, it goes ahead of all items without this flag.
        """
        lines = self._first if first else self._rest
        line = lines.get(caller)
        if line is None:
            line = lines[caller] = OrderedDict()
        line[item] = None
        self._waiting[caller] = self._waiting.get(caller, 0) + 1
        self.size += 1

    def remove(self, caller: Hashable, item: T) -> None:
        """Remove a waiting item; do nothing if it does not wait any more."""
        for lines in (self._first, self._rest):
            line = lines.get(caller)
            if line is not None and item in line:
                del line[item]
                if not line:
                    del lines[caller]
                self._gone(caller)
                return

    def next(self, places: int, *, only_below_share: bool = False) -> tuple[Hashable, T] | None:
        """Remove the item whose turn it is, and count a place for its caller. Return both; None if nothing waits.

        `places` counts taken ones too; half of them are a caller's share. `only_below_share` skips the callers that
        hold their share, even if nobody else waits.
        """
        share = max(1, places // 2)
        for lines in (self._first, self._rest):
            # Only a few callers can hold a full share, so this skips only a few.
            for caller in lines:
                if self._held.get(caller, 0) < share:
                    return self._take_out(lines, caller)
        for lines in () if only_below_share else (self._first, self._rest):
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
