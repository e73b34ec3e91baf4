"""Places of a worker: never more than there are, given out in order."""

from __future__ import annotations

import asyncio

from gateway_workers.slots import Slots


async def test_no_more_places_are_taken_than_there_are() -> None:
    slots = Slots(3)
    assert await slots.take(2) == 2
    assert await slots.take(2) == 1
    waiting = asyncio.create_task(slots.take(2))
    await asyncio.sleep(0)
    assert slots.contended
    assert not waiting.done()
    slots.give(1)
    assert await waiting == 1
    assert not slots.contended


async def test_whoever_waits_comes_before_whoever_asks_later() -> None:
    slots = Slots(1)
    assert await slots.take(1) == 1
    first = asyncio.create_task(slots.take(1))
    await asyncio.sleep(0)
    slots.give(1)
    greedy = asyncio.create_task(slots.take(1))
    assert await first == 1
    assert not greedy.done()
    greedy.cancel()


async def test_one_who_waits_takes_all_that_comes_at_once() -> None:
    slots = Slots(4)
    assert await slots.take(4) == 4
    waiting = asyncio.create_task(slots.take(3))
    await asyncio.sleep(0)
    slots.give(4)
    assert await waiting == 3
    assert await slots.take(3) == 1


async def test_closing_lets_nobody_wait_and_nobody_take() -> None:
    slots = Slots(1)
    assert await slots.take(1) == 1
    waiting = asyncio.create_task(slots.take(1))
    await asyncio.sleep(0)
    slots.close()
    assert await waiting == 0
    slots.give(1)
    assert await slots.take(1) == 0
