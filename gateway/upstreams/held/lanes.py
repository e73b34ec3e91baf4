"""Turns of calls that may ask, one at a time on each connection: on some, a question does not name its call."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Hashable
from typing import Final

from gateway.upstreams.ports import Questions

MAX_LANES: Final = 1000
"""How many connections the calls of one key may have. The pool has a lower limit."""


class _Lane:
    """One connection of a key: of the call with these questions, or of so many calls that may not ask, or free."""

    def __init__(self, key: Hashable, number: int) -> None:
        self.key = (key, number) if number else key
        self.questions: Questions | None = None
        self.others = 0

    @property
    def is_free(self) -> bool:
        """Whether no call runs here."""
        return self.questions is None and not self.others


class Lanes:
    """Gives calls with one key their turns, one call at a time on each connection.

    A call waits for one that works. If all of them wait for their users, it gets a further connection. Unused ones come
    first, and the first has the key itself, which lists and the like use at any time. Calls that may not ask run beside
    each other, but not beside one that may: its questions could be theirs.
    """

    def __init__(self) -> None:
        self._lanes: dict[Hashable, list[_Lane]] = {}
        self._changed = asyncio.Event()

    @contextlib.asynccontextmanager
    async def turn(self, key: Hashable, questions: Questions | None) -> AsyncIterator[Hashable]:
        """Wait for a turn, and yield the key of the connection. `questions` are None if the call may not ask."""
        lane = await self._free(key, may_ask=questions is not None)
        lane.questions = questions
        lane.others += questions is None
        if questions is not None:
            questions.on_change = self._wake
        try:
            yield lane.key
        finally:
            lane.questions = None
            lane.others -= questions is None
            self._forget(key)
            self._wake()

    async def _free(self, key: Hashable, *, may_ask: bool) -> _Lane:
        while True:
            lanes = self._lanes.setdefault(key, [])
            free = next((lane for lane in lanes if (lane.is_free if may_ask else lane.questions is None)), None)
            if free is not None:
                return free
            all_wait = all(lane.questions is None or lane.questions.is_asked for lane in lanes)
            if all_wait and len(lanes) < MAX_LANES:
                lanes.append(_Lane(key, len(lanes)))
                return lanes[-1]
            await self._changed.wait()

    def _forget(self, key: Hashable) -> None:
        """Forget the last lanes of a key that are free."""
        lanes = self._lanes[key]
        while lanes and lanes[-1].is_free:
            lanes.pop()
        if not lanes:
            del self._lanes[key]

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
