"""Which tasks a worker may start: nobody gets the last places, and an owner without a place gets any free one."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_workers.shares import Pick, Shares


def fill(shares: Shares, *owners: str) -> dict[str, int]:
    """Let owners take as many places as they may, in turn."""
    taken = dict.fromkeys(owners, 0)
    while any(shares.room_for(owner) for owner in owners):
        for owner in owners:
            if shares.room_for(owner):
                shares.take(owner)
                taken[owner] += 1
    return taken


@pytest.mark.parametrize(("total", "alone"), [(1, 1), (2, 1), (4, 3), (8, 7), (16, 14), (32, 28), (100, 87)])
def test_one_owner_alone_leaves_an_eighth_and_at_least_one_place(total: int, alone: int) -> None:
    assert fill(Shares(total), "a") == {"a": alone}


def test_owners_that_come_together_have_as_much_and_leave_a_place() -> None:
    assert fill(Shares(32), "a", "b") == {"a": 15, "b": 14}
    assert fill(Shares(32), "a", "b", "c") == {"a": 10, "b": 10, "c": 10}


def test_only_an_owner_without_a_place_gets_the_last_one() -> None:
    shares = Shares(4)
    assert fill(shares, "a") == {"a": 3}
    assert (shares.room_for("a"), shares.room_for("b")) == (0, 1)
    shares.take("b")
    assert shares.room_for("c") == 0


@given(
    total=st.integers(1, 64),
    moves=st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=200),
)
def test_room_is_as_many_as_may_be_taken_one_by_one_and_never_more_than_are_free(
    total: int, moves: list[tuple[str, bool]]
) -> None:
    shares, taken = Shares(total), dict.fromkeys("abcd", 0)
    for owner, gives in moves:
        if gives and taken[owner]:
            shares.give(owner)
            taken[owner] -= 1
        room = shares.room_for(owner)
        free = total - sum(taken.values())
        assert 0 <= room <= free
        assert taken[owner] or not free or room
        for left in range(room, 0, -1):
            assert shares.room_for(owner) == left
            shares.take(owner)
            taken[owner] += 1
        if taken[owner] > 1:
            assert shares.room_for(owner) == 0


def claimed(owner: str, principal: object = "somebody") -> Any:
    return SimpleNamespace(owner=owner, principal=principal)


def test_the_anonymous_owner_may_take_every_place() -> None:
    shares = Shares(4)
    Pick(shares).settle([claimed("nobody", principal=None)])
    assert fill(shares, "nobody") == {"nobody": 3}


def test_an_unclaimed_task_gives_its_place_back_and_a_lost_one_takes_one() -> None:
    shares = Shares(4)
    pick = Pick(shares)
    assert [pick.may_begin("a") for _ in range(4)] == [True, True, True, False]
    assert (pick.refused, pick.put_back) == ({"a"}, 1)
    pick.settle([claimed("a"), claimed("b")])
    assert fill(shares, "a") == {"a": 1}
    assert shares.takes_part("b")
    assert not shares.takes_part("c")


async def test_whoever_waits_for_a_change_is_woken_by_a_place_or_by_time() -> None:
    shares = Shares(1)
    shares.take("a")
    waiting = asyncio.ensure_future(shares.wait_for_change(60))
    await asyncio.sleep(0)
    shares.give("a")
    await waiting
    await shares.wait_for_change(0)
