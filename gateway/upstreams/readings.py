"""The memory of what upstreams send while it is being read: lists for callers, and answers to calls."""

from __future__ import annotations

import asyncio
import traceback
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeAlias, TypeVar

from gateway.errors import GatewayError
from gateway.upstreams.failures import Reason, UpstreamFailure

MAX_BYTES_OF_UPSTREAM: Final = 128 * 2**20
MAX_BYTES: Final = 192 * 2**20
"""How much memory may be taken by what is being read from one upstream; and from all of them, decoded values included.
"""

SMALL_BYTES: Final = 64 * 1024
"""Larger ones count until nobody uses them any more."""

_T = TypeVar("_T")


@dataclass(eq=False, slots=True)
class _HeldMemory:
    """The memory that one reading holds, including that of `decoded` values.

    `give_way` ends the reading. It is None if the reading has ended, and what was read is used.
    """

    upstream: str
    reader: Hashable
    give_way: Callable[[], None] | None
    size: int = 0
    decoded: int = 0


Count: TypeAlias = Callable[[int], None]
"""Counts further memory, or less of it if negative. Raises `UpstreamFailure` if it is too much."""


class CountAnswer(Protocol):
    """A `Count` of an answer, whose values count apart: few answers are decoded at once, however many are read."""

    def __call__(self, size: int, *, decoded: bool = False) -> None:
        """Count further memory."""
        ...


def count_nothing(size: int, *, decoded: bool = False) -> None:
    """Count nothing: what is read is small."""


Keep: TypeAlias = Callable[[Callable[[], None]], None]
"""Takes what has to be called once that which was read is not used any more."""

Reading: TypeAlias = Callable[[CountAnswer], Awaitable[_T]]
"""Reads a list or an answer, and counts its memory while it grows."""


class Readings:
    """Bounds the memory of what is being read in one process: `what` says of what, in the plural.

    If it is too much together, a reading ends with a `failure`: of the upstream that holds most, and there of the
    reader who holds most, the largest one. So small ones are read whatever other upstreams and readers do. If several
    hold about the same, the newest one gives way: otherwise, each reading would end the one before it.

    Attributes:
        problem: why a reading has ended, for operators.
    """

    def __init__(self, what: str, failure: type[UpstreamFailure]) -> None:
        self.problem = f"{what} that are being read take too much memory together"
        self._failure = failure
        self._held: dict[_HeldMemory, None] = {}
        self._memory: defaultdict[str, int] = defaultdict(int)  # by upstream, without decoded values
        self._decoded = 0

    @property
    def memory(self) -> int:
        """How much memory all readings hold."""
        return sum(self._memory.values()) + self._decoded

    async def read(self, upstream: str, reader: Hashable, reading: Reading[_T], keep: Keep | None = None) -> _T:
        """Return what a reading returns. The memory that it counts is held until it ends.

        With `keep`, that of a large one is held until it is released. Nothing that is in use gives way.

        Raises:
            UpstreamFailure: all readings together take too much.
        """
        try:
            async with asyncio.timeout(None) as limit:
                held = _HeldMemory(upstream, reader, partial(_expire, limit))
                self._held[held] = None
                kept = False
                try:
                    found = await reading(partial(self._add, held))
                    kept = keep is not None and held.size > SMALL_BYTES
                    return found
                finally:
                    if keep is not None and kept:
                        held.give_way = None
                        keep(partial(self._release, held))
                    else:
                        self._release(held)
        except TimeoutError as problem:
            if not limit.expired():
                raise
            _forget(problem.__cause__)
        except GatewayError as problem:
            _forget(problem)
            problem.__context__ = None
            raise problem.with_traceback(None)  # noqa: B904 - it is the same error, and its frames have what was read
        raise self._too_much(upstream)  # not inside `except`: its context would have what was read, too

    def hold(self, upstream: str, reader: Hashable, give_way: Callable[[], None]) -> tuple[Count, Callable[[], None]]:
        """Return what counts the memory of something that is not awaited, and what releases it.

        `give_way` must free it at once. It is not called if counting raises `UpstreamFailure`.
        """
        held = _HeldMemory(upstream, reader, give_way)
        self._held[held] = None
        return partial(self._add, held), partial(self._release, held)

    def _add(self, held: _HeldMemory, size: int, *, decoded: bool = False) -> None:
        if held not in self._held:  # it ends in a moment
            raise self._too_much(held.upstream)
        held.size += size
        if decoded:
            held.decoded += size
            self._decoded += size
        else:
            self._memory[held.upstream] += size
        while crowd := self._crowd(held.upstream):
            largest = _largest_share(_largest_share(crowd, lambda each: each.reader), lambda each: each)[0]
            self._release(largest)
            if largest is held:
                raise self._too_much(held.upstream)
            if largest.give_way is not None:
                largest.give_way()

    def _release(self, held: _HeldMemory) -> None:
        if held in self._held:
            del self._held[held]
            self._decoded -= held.decoded
            self._memory[held.upstream] -= held.size - held.decoded
            if not self._memory[held.upstream]:
                del self._memory[held.upstream]

    def _crowd(self, upstream: str) -> list[_HeldMemory]:
        """Return the readings of the upstream that holds too much, none if there is room. The newest come first."""
        read = (each for each in reversed(self._held) if each.give_way is not None)
        if self._memory[upstream] > MAX_BYTES_OF_UPSTREAM:
            return [each for each in read if each.upstream == upstream]
        return _largest_share(read, lambda each: each.upstream) if self.memory > MAX_BYTES else []

    def _too_much(self, upstream: str) -> UpstreamFailure:
        return self._failure(upstream, Reason.TOO_LARGE, sent=True, detail=self.problem)


def readings_of_answers() -> Readings:
    """Return what bounds the memory of answers while they are read."""
    return Readings("answers", UpstreamFailure)


def _expire(limit: asyncio.Timeout) -> None:
    limit.reschedule(asyncio.get_running_loop().time())


def _forget(problem: BaseException | None) -> None:
    """Empty the frames of an exception, which have what was read."""
    if problem is not None:
        traceback.clear_frames(problem.__traceback__)


def _largest_share(held: Iterable[_HeldMemory], of: Callable[[_HeldMemory], Hashable]) -> list[_HeldMemory]:
    """Return the readings of the upstream or reader that holds most; the first one, if it has about the same."""
    shares: defaultdict[Hashable, list[_HeldMemory]] = defaultdict(list)
    for each in held:
        shares[of(each)].append(each)
    return max(shares.values(), key=lambda share: _sum(share).bit_length())


def _sum(held: Iterable[_HeldMemory]) -> int:
    return sum(each.size for each in held)
