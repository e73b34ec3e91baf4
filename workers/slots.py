"""How many tasks one worker runs at once."""

from __future__ import annotations

import asyncio
from collections import deque


class Slots:
    """Places for running tasks, handed out in the order in which they were asked for.

    Args:
        total: how many there are.
    """

    def __init__(self, total: int) -> None:
        self._free = total
        self._closed = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def contended(self) -> bool:
        """Whether somebody waits for a place."""
        return bool(self._waiting)

    async def take(self, most: int) -> int:
        """Take up to `most` places; waits until there is one. Returns 0 once closed."""
        while not self._closed and (self._free == 0 or self._waiting):
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
            if self._free:
                break
        if self._closed:
            return 0
        taken = min(self._free, most)
        self._free -= taken
        self._wake()
        return taken

    def give(self, count: int) -> None:
        """Give places back."""
        self._free += count
        self._wake()

    def close(self) -> None:
        """Hand out no more places; whoever waits for one is told."""
        self._closed = True
        while self._waiting:
            self._wake_first()

    def _wake(self) -> None:
        """Let the first in the queue take what is free."""
        if self._free and self._waiting:
            self._wake_first()

    def _wake_first(self) -> None:
        turn = self._waiting.popleft()
        if not turn.done():
            turn.set_result(None)
