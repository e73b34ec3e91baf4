"""Turns for work that stops the event loop for some time."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

PAUSES: Final = 4
"""How often the event loop goes round between two turns. A short request takes about as many rounds."""


class Turns:
    """Hands out turns one after the other, so that other work is done between pieces of long work.

    Begun work comes before new work, so that little is half done at once. It belongs to one event loop.
    """

    def __init__(self) -> None:
        self._going_on: deque[asyncio.Future[None]] = deque()
        self._beginning: deque[asyncio.Future[None]] = deque()
        self._is_pausing = False

    async def turn(self, *, goes_on: bool = False) -> None:
        """Wait for a turn, which lasts until the task waits again. `goes_on` says that the work has begun before."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        (self._going_on if goes_on else self._beginning).append(waiter)
        if not self._is_pausing:
            self._is_pausing = True
            loop.call_soon(self._go_round, loop, PAUSES)
        await waiter

    def _go_round(self, loop: asyncio.AbstractEventLoop, left: int) -> None:
        """Let the event loop go round so often, and give the next turn."""
        if left == 0:
            waiter = self._next()
            if waiter is None:
                self._is_pausing = False
                return
            waiter.set_result(None)
            left = PAUSES + 1
        loop.call_soon(self._go_round, loop, left - 1)

    def _next(self) -> asyncio.Future[None] | None:
        """Remove the waiter whose turn it is; those that were cancelled are gone."""
        for waiters in (self._going_on, self._beginning):
            while waiters:
                waiter = waiters.popleft()
                if not waiter.done():
                    return waiter
        return None
