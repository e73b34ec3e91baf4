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


async def hold(bulkhead: Bulkhead, entered: asyncio.Event, release: asyncio.Event, caller: str | None = None) -> None:
    async with bulkhead.place(caller):
        entered.set()
        await release.wait()


async def test_a_request_beyond_the_places_waits_until_one_is_free() -> None:
    bulkhead, seen = make(1)
    entered, release = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        async with bulkhead.place(None):
            tasks.create_task(hold(bulkhead, entered, release))
            await asyncio.sleep(0)
            assert not entered.is_set()
        await entered.wait()
        release.set()
    assert max(seen) == 1
    assert bulkhead.in_flight == 0


async def test_a_request_that_waits_too_long_is_refused_and_sends_nothing() -> None:
    bulkhead, _ = make(1, wait_seconds=0.01)
    async with bulkhead.place(None):
        with pytest.raises(Overloaded):
            async with bulkhead.place(None):
                pytest.fail("there was no place")
    async with bulkhead.place(None):
        assert bulkhead.in_flight == 1


async def test_more_waiting_requests_than_can_get_a_place_are_refused_at_once() -> None:
    bulkhead, _ = make(1)
    release = asyncio.Event()
    release.set()
    async with asyncio.TaskGroup() as tasks, bulkhead.place(None):
        for _ in range(WAITING_FOR_EACH_PLACE):
            tasks.create_task(hold(bulkhead, asyncio.Event(), release))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await bulkhead.place(None).__aenter__()


async def test_places_are_given_in_the_order_of_requests() -> None:
    bulkhead, _ = make(1)
    order: list[int] = []

    async def take(number: int) -> None:
        async with bulkhead.place(None):
            order.append(number)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        for number in range(4):
            tasks.create_task(take(number))
    assert order == [0, 1, 2, 3]


async def test_a_place_that_reaches_a_cancelled_request_is_not_lost() -> None:
    bulkhead, _ = make(1)
    held = contextlib.AsyncExitStack()
    await held.enter_async_context(bulkhead.place(None))
    waiting = asyncio.create_task(hold(bulkhead, asyncio.Event(), asyncio.Event()))
    await asyncio.sleep(0)
    await held.aclose()  # hands the place to the one that waits …
    waiting.cancel()  # … which is cancelled before it can use it
    await asyncio.wait({waiting})
    assert bulkhead.in_flight == 0


async def test_a_rate_refuses_what_is_beyond_it() -> None:
    bulkhead, _ = make(10, Rate(2, 3600, 2))
    for _ in range(2):
        async with bulkhead.place(None):
            pass
    with pytest.raises(Overloaded):
        async with bulkhead.place(None):
            pytest.fail("the rate is used up")


async def test_one_caller_never_has_the_last_places_and_another_one_is_served_at_once() -> None:
    bulkhead, _ = make(4)
    release = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        held = [asyncio.Event() for _ in range(4)]
        for entered in held:
            tasks.create_task(hold(bulkhead, entered, release, "mallory"))
        for entered in held[:3]:
            await entered.wait()
        async with asyncio.timeout(1), bulkhead.place("alice"):
            assert not held[3].is_set()
        release.set()


async def test_anonymous_callers_who_count_as_one_may_have_all_places() -> None:
    bulkhead, seen = make(4)
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(1):
        for _ in range(4):
            await stack.enter_async_context(bulkhead.place(None))
    assert max(seen) == 4


async def test_a_caller_that_waits_often_leaves_room_to_wait_for_others_and_they_take_turns() -> None:
    bulkhead, _ = make(1)
    order: list[str] = []

    async def take(caller: str) -> None:
        with contextlib.suppress(Overloaded):
            async with bulkhead.place(caller):
                order.append(caller)
                await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks, bulkhead.place("mallory"):
        for _ in range(10):
            tasks.create_task(take("mallory"))
        await asyncio.sleep(0)
        tasks.create_task(take("alice"))
        await asyncio.sleep(0)
    assert order.index("alice") <= 1
    assert order.count("mallory") < WAITING_FOR_EACH_PLACE


async def test_of_a_rate_that_one_caller_uses_up_another_one_gets_the_next_request() -> None:
    bulkhead, _ = make(100, Rate(20, 1, 1))
    order: list[str] = []

    async def take(caller: str) -> None:
        async with bulkhead.place(caller):
            order.append(caller)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(6):
            tasks.create_task(take("mallory"))
        await asyncio.sleep(0)
        tasks.create_task(take("alice"))
    assert order.index("alice") <= 2
