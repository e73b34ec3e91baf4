"""Coroutines that race each other."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def first_to_finish(*rivals: Coroutine[Any, Any, T]) -> T:
    """Return what the first of several coroutines returns or raises; end the others.

    Of several that finish at the same time the one that is named first counts.
    """
    tasks = [asyncio.create_task(rival) for rival in rivals]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task for task in tasks if task in done).result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
