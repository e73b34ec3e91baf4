"""Turns: one piece of long work at a time, with other work between them."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise

import pytest

from gateway.runtime.turns import PAUSES, Turns


async def test_other_work_goes_on_between_two_turns_and_begun_work_comes_first() -> None:
    turns, done = Turns(), list[str]()

    async def work(name: str) -> None:
        await turns.begin(None, name)
        done.append(f"{name} begins")
        await turns.resume(None)
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
    first, second, third = (asyncio.create_task(turns.begin(None, None)) for _ in range(3))
    await asyncio.sleep(0)
    second.cancel()

    await asyncio.wait_for(asyncio.gather(first, third), 10)
    await asyncio.wait_for(turns.begin(None, None), 10)
    assert second.cancelled()


async def test_a_turn_is_given_at_once_if_the_last_one_was_long_ago() -> None:
    turns = Turns(pauses=1)
    for _ in range(2):
        first, second = asyncio.create_task(turns.begin(None, None)), asyncio.create_task(turns.resume(None))
        await asyncio.sleep(0)
        assert (first.done(), second.done()) == (True, False)
        await asyncio.wait_for(second, 10)
        for _ in range(3):
            await asyncio.sleep(0)


async def order_of(*waiting: tuple[str, str]) -> list[str]:
    """Return the groups and callers in the order of their turns."""
    turns, done = Turns(), list[str]()

    async def work(group: str, caller: str) -> None:
        await turns.begin(group, caller)
        done.append(group + caller)

    await turns.begin(None, None)  # so that nobody else has one at once
    await asyncio.gather(*(work(group, caller) for group, caller in waiting))
    return done


async def test_groups_and_the_callers_in_them_have_turns_alike_however_much_waits() -> None:
    assert await order_of(("a", "1"), ("a", "1"), ("a", "1"), ("b", "1")) == ["a1", "b1", "a1", "a1"]
    waiting = (("a", "1"), ("a", "1"), ("a", "2"), ("a", "3"), ("b", "1"), ("b", "1"), ("b", "2"))
    assert await order_of(*waiting) == ["a1", "b1", "a2", "b2", "a3", "b1", "a1"]


async def test_a_group_keeps_its_turn_when_some_of_its_work_is_cancelled() -> None:
    turns, done = Turns(), list[str]()

    async def work(group: str, caller: str) -> None:
        await turns.begin(group, caller)
        done.append(group + caller)

    await turns.begin(None, None)
    tasks = [asyncio.create_task(work(*each)) for each in (("a", "1"), ("a", "1"), ("a", "2"), ("b", "1"), ("b", "1"))]
    await asyncio.sleep(0)
    tasks[0].cancel()
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert done == ["a2", "b1", "b1"]


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_turn_lasts_as_long_as_its_work_in_a_thread_while_the_loop_runs(is_cancelled: bool) -> None:
    turns, gate, done = Turns(), threading.Event(), list[str]()

    async def long() -> None:
        await turns.begin(None, "a")
        await turns.aside(gate.wait)
        await turns.resume(None)
        done.append("long")

    async def short() -> None:
        await turns.begin(None, "b")
        done.append("short")

    working, waiting = asyncio.create_task(long()), asyncio.create_task(short())
    for _ in range(10 * PAUSES):
        await asyncio.sleep(0)
    if is_cancelled:
        working.cancel()
        for _ in range(10 * PAUSES):
            await asyncio.sleep(0)
    assert not done
    gate.set()
    await asyncio.wait([working, waiting])
    assert done == (["short"] if is_cancelled else ["long", "short"])


async def test_what_work_in_a_thread_raises_is_raised_and_ends_the_turn() -> None:
    turns = Turns()
    await turns.begin(None, None)
    with pytest.raises(ZeroDivisionError):
        await turns.aside(lambda: 1 // 0)
    await asyncio.wait_for(turns.begin(None, None), 10)


@pytest.mark.parametrize("late", [("mallorys", "bob"), ("bobs", "bob")])
async def test_who_had_the_last_turn_waits_for_one_who_came_after_it(late: tuple[str, str]) -> None:
    turns, order, came = Turns(), list[str](), list[asyncio.Task[None]]()

    async def work(group: str, caller: str) -> None:
        await turns.begin(group, caller)
        order.append(caller)
        if len(order) == 2:
            came.append(asyncio.create_task(work(*late)))

    await asyncio.gather(*(work("mallorys", "mallory") for _ in range(4)))
    await asyncio.gather(*came)
    assert order == ["mallory", "mallory", "bob", "mallory", "mallory"]
