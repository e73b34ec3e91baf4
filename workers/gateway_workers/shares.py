"""What one owner may take of a worker. A place that is taken is free again only when its task ends, perhaps in hours.

So nobody may take the last ones: an owner gets another place while it has at most seven times as many as are free then.
Alone it has up to seven eighths of all places; two owners have up to seven fifteenths each; and so on. Whoever has none
may take any that is free, so the first task of an owner begins at once, whatever others have begun before.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from gateway.tasks.ports import Claim

MOST_PER_FREE: Final = 7
"""How many places one owner may have for each that is free."""


class Shares:
    """Counts the places of a worker that tasks of each owner have.

    The anonymous owner has no share: where nobody says who calls, all are one.

    Args:
        total: how many places there are.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._taken = 0
        self._of_owner: Counter[str] = Counter()
        self._anonymous: str | None = None
        self._waiting: set[asyncio.Future[None]] = set()

    def room_for(self, owner: str) -> int:
        """Return how many tasks of an owner may begin now; 0 if none."""
        free = self._total - self._taken
        if owner == self._anonymous:
            return free
        has = self._of_owner[owner]
        room = (MOST_PER_FREE * free - has) // (MOST_PER_FREE + 1)
        return max(room, 0 if has else min(free, 1))

    def takes_part(self, owner: str) -> bool:
        """Tell whether an owner has a place now."""
        return self._of_owner[owner] > 0

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
        """Wait until a place is given back, or for so long."""
        change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(change)
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(change, seconds)
        finally:
            self._waiting.discard(change)


class Pick:
    """Decides for the tasks of one claim which of them may begin, and counts these.

    Args:
        shares: of the worker.

    Attributes:
        refused: the owners that have their share.
        put_back: how many of their tasks were not begun.
    """

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._begun: Counter[str] = Counter()
        self.refused: set[str] = set()
        self.put_back = 0

    def may_begin(self, owner: str) -> bool:
        """Tell whether a task of an owner may begin; if so, its place is taken."""
        if not self._shares.room_for(owner):
            self.refused.add(owner)
            self.put_back += 1
            return False
        self._shares.take(owner)
        self._begun[owner] += 1
        return True

    def settle(self, claims: Iterable[Claim]) -> None:
        """Take places for what was claimed without asking, as lost tasks are, and give back those of what was not."""
        for claim in claims:
            self._shares.know(claim)
            if self._begun[claim.owner]:
                self._begun[claim.owner] -= 1
            else:
                self._shares.take(claim.owner)
        for owner in self._begun.elements():
            self._shares.give(owner)
