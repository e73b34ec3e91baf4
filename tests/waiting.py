"""Waits for conditions that nothing announces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

SECONDS: Final = 20
PAUSE_SECONDS: Final = 0.001


async def until(condition: Callable[[], object]) -> None:
    """Let the event loop run until a condition holds, for a bounded time."""
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(PAUSE_SECONDS)
