"""The bytes of request bodies that a replica holds at a time, in all and for each caller.

A body takes several times its size in memory, from its first byte until its request is answered. So the bytes count all
that time: while they arrive, and while the call runs, waits for a place, or is relayed to an upstream. A body that
takes more memory than others of its size counts as more bytes; see `strict_json.weight`. The answers that a waiting
call keeps count too.

A caller may hold a quarter of the budget, and no more than it leaves free. So a few callers cannot use all of it up.
"""

from __future__ import annotations

from collections.abc import Hashable
from types import TracebackType
from typing import Final

import msgspec

from gateway.errors import Overloaded, TooManyBodyBytes

SHARES: Final = 4
"""Into how many shares the budget is divided. Each holds at least one of the largest bodies."""

EXTRA_BYTES: Final = 1 << 20
"""How much further messages that are never refused may take above a share, for each caller and in all: 16 of the
largest ones, see `gateway.web.bodies.QUICK_BYTES`."""


class BodyBudget:
    """Counts the bytes of bodies. Its memory is bounded by the number of bodies.

    All callers together may hold `max_bytes`, and one caller its `share` of them. A caller may always hold one body of
    the `largest` size.
    """

    def __init__(self, max_bytes: int, largest: int) -> None:
        self.held_bytes = 0
        self._max_bytes = max(max_bytes, SHARES * largest)
        self.share = self._max_bytes // SHARES
        self._held: dict[Hashable, int] = {}

    def __len__(self) -> int:
        """Return how many callers hold bytes."""
        return len(self._held)

    def hold(self, caller: Hashable) -> HeldBody:
        """Return a body of a caller, which holds no bytes yet."""
        return HeldBody(self, caller)

    def take(self, caller: Hashable, size: int, extra: int = 0) -> None:
        """Count further bytes of a caller.

        The caller may then hold `extra` bytes above its share.

        Raises:
            TooManyBodyBytes: the caller would hold more than that. None of the bytes counts.
        """
        held = self._held.get(caller, 0) + size
        if held > min(self.share, self._max_bytes - self.held_bytes - size) + extra:
            has_its_share = held > self.share + extra
            raise TooManyBodyBytes(text=None if has_its_share else Overloaded.TEXT)
        if size:
            self._held[caller] = held
            self.held_bytes += size

    def free(self, caller: Hashable, size: int) -> None:
        """Count bytes of a caller no more."""
        self.held_bytes -= size
        self._held[caller] -= size
        if not self._held[caller]:
            del self._held[caller]


class HeldBody(msgspec.Struct):
    """The bytes of one body; a context manager, which frees them at its end."""

    _budget: BodyBudget
    _caller: Hashable
    _size: int = 0

    def grow(self, size: int) -> None:
        """Count further bytes of the body; see `BodyBudget.take`."""
        self._budget.take(self._caller, size)
        self._size += size

    def grow_to(self, size: int, extra: int = 0) -> None:
        """Count the body as so many bytes, if it counted as fewer. No body is refused because it alone is over a share.

        Raises:
            TooManyBodyBytes: see `BodyBudget.take`.
        """
        further = min(self._budget.share, size) - self._size
        if further > 0:
            self._budget.take(self._caller, further, extra)
            self._size += further

    def keep(self, size: int) -> None:
        """Count further bytes, which came in another body of the caller. They may take as many above its share.

        That body counts itself, but only until its request is answered.

        Raises:
            TooManyBodyBytes: see `BodyBudget.take`.
        """
        size = min(size, self._budget.share)
        self._budget.take(self._caller, size, max(size, EXTRA_BYTES))
        self._size += size

    def clear(self) -> None:
        """Free the bytes."""
        if self._size:
            self._budget.free(self._caller, self._size)
            self._size = 0

    def __enter__(self) -> HeldBody:
        """Begin."""
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Free the bytes."""
        if self._size:
            self._budget.free(self._caller, self._size)
