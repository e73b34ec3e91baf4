"""Turns for work that stops the event loop for some time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeAlias, TypeVar

PAUSES: Final = 4
"""How often the event loop goes round between two turns by default. A short request takes about as many rounds."""

_T = TypeVar("_T")
_Waiter: TypeAlias = "asyncio.Future[None]"


class Turns:
    """Hands out turns one after the other, so that other work is done between pieces of long work.

    All groups have turns alike, however much work of each waits. Within a group, begun work comes before new work, so
    that little is half done at once, and callers may begin alike. Between two turns, the event loop goes round
    `pauses` times. It belongs to one event loop.
    """

    def __init__(self, pauses: int = PAUSES) -> None:
        self._pauses = pauses
        self._groups: dict[Hashable, _WaitingGroup] = {}  # the next first
        self._served: Hashable = None
        self._is_pausing = False
        self._round: asyncio.Handle | None = None
        self._thread: ThreadPoolExecutor | None = None

    async def begin(self, group: Hashable, caller: Hashable) -> None:
        """Wait for a turn to begin some work. It lasts until the task waits again."""
        if self._is_free():
            return
        waiter = asyncio.get_running_loop().create_future()
        self._group(group).beginning.setdefault(caller, deque()).append(waiter)
        await waiter

    async def resume(self, group: Hashable) -> None:
        """Wait for another turn for work that has begun."""
        if self._is_free():
            return
        waiter = asyncio.get_running_loop().create_future()
        self._group(group).begun.append(waiter)
        await waiter

    async def aside(self, work: Callable[[], _T]) -> _T:
        """Use a turn, which has just been given, for some work in a thread. It lasts until the work has ended.

        The event loop runs meanwhile, but not during a single call of C code that keeps the interpreter's lock. So each
        of them must be short.
        """
        loop = asyncio.get_running_loop()
        if self._round is not None:
            self._round.cancel()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="turn")
        future = self._thread.submit(work)
        worked = asyncio.wrap_future(future)

        def ended(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._go_round, loop, self._pauses)

        future.add_done_callback(ended)  # after the task is woken, so that it can resume its work before others begin
        return await worked

    def _is_free(self) -> bool:
        """Return whether nobody waits and the last turn was long ago; then this is a turn."""
        if self._is_pausing:
            return False
        self._is_pausing = True
        loop = asyncio.get_running_loop()
        self._round = loop.call_soon(self._go_round, loop, self._pauses)
        return True

    def _group(self, name: Hashable) -> _WaitingGroup:
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = _WaitingGroup()
        return group

    def _go_round(self, loop: asyncio.AbstractEventLoop, left: int) -> None:
        """Let the event loop go round so often, and give the next turn."""
        if left == 0:
            waiter = self._next()
            if waiter is None:
                self._is_pausing = False
                return
            waiter.set_result(None)
            left = self._pauses + 1
        self._round = loop.call_soon(self._go_round, loop, left - 1)

    def _next(self) -> _Waiter | None:
        """Remove the waiter whose turn it is. Its group waits behind all others then, also if they come later."""
        while self._groups:
            name = _next_of(self._groups, self._served)
            group = self._groups.pop(name)
            waiter = group.next()
            if waiter is not None:
                self._groups[name] = group
                self._served = name
                return waiter
        return None


class _WaitingGroup:
    """The work of one group that waits. `beginning` has that of each caller, the next one first."""

    def __init__(self) -> None:
        self.begun: deque[_Waiter] = deque()
        self.beginning: dict[Hashable, deque[_Waiter]] = {}
        self._served: Hashable = None

    def next(self) -> _Waiter | None:
        """Remove the waiter whose turn it is, None without one. Its caller waits behind all others then."""
        waiter = _first(self.begun)
        while waiter is None and self.beginning:
            self._served = caller = _next_of(self.beginning, self._served)
            waiters = self.beginning.pop(caller)
            waiter = _first(waiters)
            if waiters:
                self.beginning[caller] = waiters
        return waiter


def _next_of(waiting: Iterable[Hashable], served: Hashable) -> Hashable:
    """Return the first one that waits, or the second one if the first has just been served."""
    return next((each for each in waiting if each != served), served)


def _first(waiters: deque[_Waiter]) -> _Waiter | None:
    """Remove the first waiter; those that were cancelled are gone."""
    while waiters:
        waiter = waiters.popleft()
        if not waiter.done():
            return waiter
    return None
