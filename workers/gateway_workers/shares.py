"""Limits how many places of a worker one owner may take. A place stays taken until its task ends, perhaps for hours.

So nobody may take the last places: an owner gets another place only if it then has at most seven times as many as stay
free. A single owner can have up to seven eighths of all places, two owners up to seven fifteenths each, and so on. An
owner without a place may take any free one, so its first task starts at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from gateway.tasks.ports import Claim

MOST_PER_FREE: Final = 7
"""How many places one owner may have for each free one."""

MANY_OF_TOTAL: Final = 4
"""An owner with one place of so many has a large part of them."""


class Shares:
    """Counts the places that the tasks of each owner hold at a worker.

    The anonymous owner has no limit, because without authentication all callers are one owner.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._taken = 0
        self._of_owner: Counter[str] = Counter()
        self._anonymous: str | None = None
        self._waiting: set[asyncio.Future[None]] = set()

    def room_for(self, owner: str) -> int:
        """Return how many tasks of an owner may start now."""
        free = self._total - self._taken
        if owner == self._anonymous:
            return free
        has = self._of_owner[owner]
        room = (MOST_PER_FREE * free - has) // (MOST_PER_FREE + 1)
        return max(room, 0 if has else min(free, 1))

    def takes_part(self, owner: str) -> bool:
        """Return whether an owner has a place now."""
        return self._of_owner[owner] > 0

    def with_many(self) -> list[str]:
        """Return the owners that have a large part of the places."""
        least = self._total / MANY_OF_TOTAL
        return [owner for owner, has in self._of_owner.items() if has >= least and owner != self._anonymous]

    def take(self, owner: str) -> None:
        """Count a place as taken."""
        self._taken += 1
        self._of_owner[owner] += 1

    def give(self, owner: str) -> None:
        """Count a place as free again."""
        self._taken -= 1
        self._of_owner[owner] -= 1
        if not self._of_owner[owner]:
            del self._of_owner[owner]
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    def know(self, claim: Claim) -> None:
        """Learn from a task which owner is the anonymous one."""
        if claim.principal is None:
            self._anonymous = claim.owner

    async def wait_for_change(self, seconds: float) -> None:
        """Wait until a place is given back, for at most `seconds`."""
        change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(change)
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(change, seconds)
        finally:
            self._waiting.discard(change)


class Pick:
    """Decides which tasks of one claim may start, and counts their places.

    Attributes:
        refused: the owners that already have their share.
        put_back: how many of their tasks did not start.
    """

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._begun: Counter[str] = Counter()
        self.refused: set[str] = set()
        self.put_back = 0

    def may_begin(self, owner: str) -> bool:
        """Return whether a task of an owner may start, and take its place if so."""
        if not self._shares.room_for(owner):
            self.refused.add(owner)
            self.put_back += 1
            return False
        self._shares.take(owner)
        self._begun[owner] += 1
        return True

    def settle(self, claims: Iterable[Claim]) -> None:
        """Adjust the places to the actual claims.

        Tasks claimed without asking, such as those of a lost worker, take places. Places of tasks that were not claimed
        are given back.
        """
        for claim in claims:
            self._shares.know(claim)
            if self._begun[claim.owner]:
                self._begun[claim.owner] -= 1
            else:
                self._shares.take(claim.owner)
        for owner in self._begun.elements():
            self._shares.give(owner)
