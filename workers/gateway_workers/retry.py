"""Outlasts outages of the task store by retrying. The store logs them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from gateway.errors import TaskStoreDown

T = TypeVar("T")

FIRST_PAUSE_SECONDS: Final = 0.05
LONGEST_PAUSE_SECONDS: Final = 1.0


async def outlast(call: Callable[[], Awaitable[T]]) -> T:
    """Retry a call, at increasing intervals, until the store executes it. To limit the time, cancel this."""
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            return await call()
        except TaskStoreDown:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
