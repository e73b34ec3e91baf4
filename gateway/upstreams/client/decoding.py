"""Decodes messages of upstreams without holding up other work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from gateway.protocol.upstream.deviations import Deviation, Heal
from gateway.protocol.upstream.responses import Notice
from gateway.runtime.turns import Turns
from gateway.sealing.principal import Principal
from gateway.upstreams.readings import MAX_BYTES_OF_UPSTREAM, CountAnswer, count_nothing

QUICK_BYTES: Final = 64 * 1024
QUICK_COMMAS: Final = 500
"""A message with more waits for its turn to be decoded, and again before what follows: each takes long. Between two
values of JSON is a comma."""

VALUE_BYTES: Final = 100
"""About how much memory a decoded value takes."""

T = TypeVar("T")


class Decoding:
    """Decodes the messages of one upstream. All that share `turns` decode large ones one after the other."""

    def __init__(self, upstream: str, turns: Turns, heal: Heal) -> None:
        self._upstream = upstream
        self._turns = turns
        self._heal = heal

    async def run(
        self,
        body: bytes,
        decode: Callable[[Heal], T],
        caller: Principal | None = None,
        *,
        deadline: float | None = None,
        count: CountAnswer = count_nothing,
    ) -> T:
        """Decode a message: a large one in a thread, in its turn. Other work has its turn before the result is used.

        `count` counts the memory that the message takes, of a notification only while it is decoded.

        Raises:
            TimeoutError: its turn had not come before the deadline, on the clock of the event loop.
        """
        if is_quick(body):
            return decode(self._heal)
        async with asyncio.timeout_at(deadline):
            await self._turns.begin(self._upstream, caller)
        size = _decoded_bytes(body)
        count(size, decoded=True)
        healed: list[Deviation] = []
        try:
            message = await self._turns.aside(lambda: decode(healed.append))
        finally:
            for deviation in healed:
                self._heal(deviation)
        await self._turns.resume(self._upstream)
        if isinstance(message, Notice):
            count(-size, decoded=True)
        return message


def is_quick(body: bytes) -> bool:
    """Return whether a message is decoded at once, and takes little memory."""
    return len(body) <= QUICK_COMMAS or (len(body) <= QUICK_BYTES and body.count(b",") <= QUICK_COMMAS)


def _decoded_bytes(body: bytes) -> int:
    """Return about how much memory a message takes once it is decoded. One character may make all of a text wide."""
    width = 1 if body.isascii() and b"\\u" not in body else 4
    return min(width * len(body) + VALUE_BYTES * body.count(b","), MAX_BYTES_OF_UPSTREAM // 2)
