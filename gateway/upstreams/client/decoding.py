"""Decodes messages of upstreams without holding up other work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from gateway.protocol.upstream.deviations import Deviation, Heal
from gateway.runtime.turns import Turns
from gateway.sealing.principal import Principal

QUICK_BYTES: Final = 64 * 1024
QUICK_COMMAS: Final = 500
"""A message with more waits for its turn to be decoded, and again before what follows: each takes long. Between two
values of JSON is a comma."""

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
    ) -> T:
        """Decode a message: a large one in a thread, in its turn. Other work has its turn before the result is used.

        Raises:
            TimeoutError: its turn had not come before the deadline, on the clock of the event loop.
        """
        if len(body) <= QUICK_COMMAS or (len(body) <= QUICK_BYTES and body.count(b",") <= QUICK_COMMAS):
            return decode(self._heal)
        async with asyncio.timeout_at(deadline):
            await self._turns.begin(self._upstream, caller)
        healed: list[Deviation] = []
        try:
            message = await self._turns.aside(lambda: decode(healed.append))
        finally:
            for deviation in healed:
                self._heal(deviation)
        await self._turns.resume(self._upstream)
        return message
