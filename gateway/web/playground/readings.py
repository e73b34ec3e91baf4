"""The readings of callers' tasks, of which few run at once: each reads all tasks of a caller."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from gateway.errors import Overloaded

MAX_READINGS: Final = 2
"""How many readings run at once."""

MAX_WAITING: Final = 8
"""How many more wait for their turn. Further ones are refused."""


class ReadingTurns:
    """Gives readings their turns, the first one first."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(MAX_READINGS)
        self._present = 0

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for the turn of a reading, which lasts as long as the context. If too many wait, raise `Overloaded`."""
        if self._present >= MAX_READINGS + MAX_WAITING:
            raise Overloaded
        self._present += 1
        try:
            async with self._turns:
                yield
        finally:
            self._present -= 1
