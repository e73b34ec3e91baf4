"""Turns for work that stops the event loop for some time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Final, TypeAlias

PAUSES: Final = 8
"""How often the event loop goes round between two turns. A short request on a new connection takes about as many."""

_Waiter: TypeAlias = "asyncio.Future[None]"


class Turns:
    """Hands out turns one after the other, so that other work is done between pieces of long work.

    Begun work comes before new work, so that little is half done at once. New work of all groups has turns alike,
    however much of it waits, and so have the callers within a group. It belongs to one event loop.
    """

    def __init__(self) -> None:
        self._going_on: deque[_Waiter] = deque()
        self._beginning: dict[Hashable, dict[Hashable, deque[_Waiter]]] = {}  # by group and caller; the next first
        self._is_pausing = False

    async def turn(self, group: Hashable, caller: Hashable) -> None:
        """Wait for a turn to begin some work. It lasts until the task waits again."""
        waiter = asyncio.get_running_loop().create_future()
        self._beginning.setdefault(group, {}).setdefault(caller, deque()).append(waiter)
        await self._given(waiter)

    async def go_on(self) -> None:
        """Wait for a turn to go on with work that has begun."""
        waiter = asyncio.get_running_loop().create_future()
        self._going_on.append(waiter)
        await self._given(waiter)

    async def _given(self, waiter: _Waiter) -> None:
        if not self._is_pausing:
            self._is_pausing = True
            loop = waiter.get_loop()
            loop.call_soon(self._go_round, loop, PAUSES)
        await waiter

    def _go_round(self, loop: asyncio.AbstractEventLoop, left: int) -> None:
        """Let the event loop go round so often, and give the next turn."""
        if left == 0:
            waiter = _first(self._going_on) or self._next_to_begin()
            if waiter is None:
                self._is_pausing = False
                return
            waiter.set_result(None)
            left = PAUSES + 1
        loop.call_soon(self._go_round, loop, left - 1)

    def _next_to_begin(self) -> _Waiter | None:
        """Remove the waiter whose turn it is. Its group and its caller wait behind all others then."""
        while self._beginning:
            group, callers = next(iter(self._beginning.items()))
            caller, waiters = next(iter(callers.items()))
            waiter = _first(waiters)
            del callers[caller]
            if waiters:
                callers[caller] = waiters
            if waiter is not None or not callers:
                del self._beginning[group]
                if callers:
                    self._beginning[group] = callers
            if waiter is not None:
                return waiter
        return None


def _first(waiters: deque[_Waiter]) -> _Waiter | None:
    """Remove the first waiter; those that were cancelled are gone."""
    while waiters:
        waiter = waiters.popleft()
        if not waiter.done():
            return waiter
    return None
