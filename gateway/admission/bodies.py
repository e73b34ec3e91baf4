"""The bytes of request bodies that a replica holds at a time, in all and for each caller.

A body takes several times its size in memory, from its first byte until its request is answered. So the bytes count all
that time: while they arrive, and while the call runs, waits for a place, or is relayed to an upstream.

A caller may hold a quarter of the budget, and no more than it leaves free. So a few callers cannot use all of it up.
"""

from __future__ import annotations

from collections.abc import Hashable
from types import TracebackType
from typing import Final

from gateway.errors import TooManyBodyBytes

SHARES: Final = 4
"""Into how many shares the budget is divided. Each holds at least one of the largest bodies."""


class BodyBudget:
    """Counts the bytes of bodies. Its memory is bounded by the number of bodies.

    Args:
        max_bytes: how many bytes all callers together may hold.
        largest: the size of the largest body, in bytes. A caller may always hold one.

    Attributes:
        held_bytes: how many bytes are held now.
    """

    def __init__(self, max_bytes: int, largest: int) -> None:
        self.held_bytes = 0
        self._max_bytes = max(max_bytes, SHARES * largest)
        self._held: dict[Hashable, int] = {}

    def __len__(self) -> int:
        """Return how many callers hold bytes."""
        return len(self._held)

    def hold(self, caller: Hashable) -> HeldBody:
        """Return a body of a caller, which holds no bytes yet."""
        return HeldBody(self, caller)

    def take(self, caller: Hashable, size: int) -> None:
        """Count further bytes of a caller.

        Raises:
            TooManyBodyBytes: the caller would hold more than its share. None of the bytes counts.
        """
        held = self._held.get(caller, 0) + size
        if held > min(self._max_bytes // SHARES, self._max_bytes - self.held_bytes - size):
            raise TooManyBodyBytes
        self._held[caller] = held
        self.held_bytes += size

    def free(self, caller: Hashable, size: int) -> None:
        """Count bytes of a caller no more."""
        self.held_bytes -= size
        self._held[caller] -= size
        if not self._held[caller]:
            del self._held[caller]


class HeldBody:
    """The bytes of one body; a context manager, which frees them at its end."""

    __slots__ = ("_budget", "_caller", "_size")

    def __init__(self, budget: BodyBudget, caller: Hashable) -> None:
        self._budget = budget
        self._caller = caller
        self._size = 0

    def grow(self, size: int) -> None:
        """Count further bytes of the body; see `BodyBudget.take`."""
        self._budget.take(self._caller, size)
        self._size += size

    def __enter__(self) -> HeldBody:
        """Begin."""
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Free the bytes."""
        if self._size:
            self._budget.free(self._caller, self._size)
