"""Limits how many tasks a worker runs at once."""

from __future__ import annotations

import asyncio
from collections import deque


class Slots:
    """Places for running tasks, given out in the order of the requests."""

    def __init__(self, total: int) -> None:
        self._free = total
        self._closed = False
        self._waiting: deque[asyncio.Future[int]] = deque()

    @property
    def contended(self) -> bool:
        """Whether anybody waits for a place."""
        return bool(self._waiting)

    async def take(self, most: int) -> int:
        """Wait for a free place, then take up to `most` and return how many; 0 once closed."""
        if self._closed:
            return 0
        given = 0
        if self._free == 0:
            turn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            given = await turn
            if given == 0:
                return 0
        more = min(self._free, most - given)
        self._free -= more
        return given + more

    def give(self, count: int) -> None:
        """Give places back."""
        self._free += count
        while self._free and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                self._free -= 1
                turn.set_result(1)

    def close(self) -> None:
        """Give out no more places; all who wait get 0."""
        self._closed = True
        for turn in self._waiting:
            if not turn.done():
                turn.set_result(0)
        self._waiting.clear()
