"""Lets other work have its turn while something long is read."""

from __future__ import annotations

import asyncio
from typing import Final

PORTION_BYTES: Final = 8 * 1024
PORTION_EVENTS: Final = 64
"""How much of a stream is read before other work gets its turn: bytes, and messages however short."""


class Portions:
    """Lets other work have its turn after each portion of a stream.

    Data may always be ready, so waiting for it need not be a pause.
    """

    def __init__(self) -> None:
        self._bytes = 0
        self._events = 0

    async def read(self, *, size: int = 0, events: int = 0) -> None:
        """Count what has been read, and pause after a portion."""
        self._bytes += size
        self._events += events
        if self._bytes >= PORTION_BYTES or self._events >= PORTION_EVENTS:
            self._bytes = self._events = 0
            await asyncio.sleep(0)
