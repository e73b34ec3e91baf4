"""Getting along without the task store for a while: what it did not do is tried again. It is the store that logs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from gateway.errors import TaskStoreDown

T = TypeVar("T")

FIRST_PAUSE_SECONDS: Final = 0.05
LONGEST_PAUSE_SECONDS: Final = 1.0


async def outlast(call: Callable[[], Awaitable[T]]) -> T:
    """Call until the store does it, less and less often. Whoever cannot wait forever cancels this."""
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            return await call()
        except TaskStoreDown:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
