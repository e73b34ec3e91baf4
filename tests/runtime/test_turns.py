"""Turns: one piece of long work at a time, with other work between them."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from gateway.runtime.turns import PAUSES, Turns


async def test_other_work_goes_on_between_two_turns_and_begun_work_comes_first() -> None:
    turns, done = Turns(), list[str]()

    async def work(name: str) -> None:
        await turns.turn()
        done.append(f"{name} begins")
        await turns.turn(goes_on=True)
        done.append(f"{name} ends")

    async def other() -> None:
        while True:
            done.append("other")
            await asyncio.sleep(0)

    working = [asyncio.create_task(work(name)) for name in "abc"]
    short = asyncio.create_task(other())
    await asyncio.gather(*working)
    short.cancel()

    pieces = [piece for piece in done if piece != "other"]
    assert pieces == ["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]
    at = [done.index(piece) for piece in pieces]
    assert all(later - earlier > PAUSES for earlier, later in pairwise(at))


async def test_who_no_longer_waits_gets_no_turn_and_holds_up_nobody() -> None:
    turns = Turns()
    first, second, third = (asyncio.create_task(turns.turn()) for _ in range(3))
    await asyncio.sleep(0)
    second.cancel()

    await asyncio.wait_for(asyncio.gather(first, third), 10)
    await asyncio.wait_for(turns.turn(), 10)
    assert second.cancelled()
