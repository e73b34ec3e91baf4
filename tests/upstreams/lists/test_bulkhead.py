"""How many requests an upstream works on, and what happens to the others."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from gateway.errors import Overloaded
from gateway.settings.rates import Rate
from gateway.upstreams.bulkhead import WAITING_FOR_EACH_PLACE, Bulkhead


def make(places: int, rate: Rate | None = None, wait_seconds: float = 30.0) -> tuple[Bulkhead, list[int]]:
    seen: list[int] = []
    return Bulkhead(places, rate, seen.append, wait_seconds=wait_seconds), seen


async def hold(bulkhead: Bulkhead, entered: asyncio.Event, release: asyncio.Event) -> None:
    async with bulkhead.place():
        entered.set()
        await release.wait()


async def test_a_request_beyond_the_places_waits_until_one_is_free() -> None:
    bulkhead, seen = make(1)
    entered, release = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        async with bulkhead.place():
            tasks.create_task(hold(bulkhead, entered, release))
            await asyncio.sleep(0)
            assert not entered.is_set()
        await entered.wait()
        release.set()
    assert max(seen) == 1
    assert bulkhead.in_flight == 0


async def test_a_request_that_waits_too_long_is_refused_and_sends_nothing() -> None:
    bulkhead, _ = make(1, wait_seconds=0.01)
    async with bulkhead.place():
        with pytest.raises(Overloaded):
            async with bulkhead.place():
                pytest.fail("there was no place")
    async with bulkhead.place():
        assert bulkhead.in_flight == 1


async def test_more_waiting_requests_than_can_get_a_place_are_refused_at_once() -> None:
    bulkhead, _ = make(1)
    release = asyncio.Event()
    release.set()
    async with asyncio.TaskGroup() as tasks, bulkhead.place():
        for _ in range(WAITING_FOR_EACH_PLACE):
            tasks.create_task(hold(bulkhead, asyncio.Event(), release))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await bulkhead.place().__aenter__()


async def test_places_are_given_in_the_order_of_requests() -> None:
    bulkhead, _ = make(1)
    order: list[int] = []

    async def take(number: int) -> None:
        async with bulkhead.place():
            order.append(number)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        for number in range(4):
            tasks.create_task(take(number))
    assert order == [0, 1, 2, 3]


async def test_a_place_that_reaches_a_cancelled_request_is_not_lost() -> None:
    bulkhead, _ = make(1)
    held = contextlib.AsyncExitStack()
    await held.enter_async_context(bulkhead.place())
    waiting = asyncio.create_task(hold(bulkhead, asyncio.Event(), asyncio.Event()))
    await asyncio.sleep(0)
    await held.aclose()  # hands the place to the one that waits …
    waiting.cancel()  # … which is cancelled before it can use it
    await asyncio.wait({waiting})
    assert bulkhead.in_flight == 0


async def test_a_rate_refuses_what_is_beyond_it() -> None:
    bulkhead, _ = make(10, Rate(2, 3600, 2))
    for _ in range(2):
        async with bulkhead.place():
            pass
    with pytest.raises(Overloaded):
        async with bulkhead.place():
            pytest.fail("the rate is used up")
