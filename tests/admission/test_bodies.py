"""How many bytes of bodies callers may hold: each a quarter, and no more than it leaves free."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admission.bodies import EXTRA_BYTES, BodyBudget
from gateway.errors import TooManyBodyBytes

TOTAL, LARGEST = 6400, 100


def test_a_caller_holds_a_quarter_and_the_bytes_of_a_body_that_has_ended_are_free_again() -> None:
    budget = BodyBudget(TOTAL, LARGEST)
    with contextlib.ExitStack() as stack:
        for _ in range(16):
            stack.enter_context(budget.hold("greedy")).grow(LARGEST)
        with budget.hold("greedy") as body, pytest.raises(TooManyBodyBytes):
            body.grow(1)
        with budget.hold("other") as body:
            body.grow(LARGEST)
            assert budget.held_bytes == 17 * LARGEST
    assert budget.held_bytes == 0
    assert len(budget) == 0


def test_a_caller_whose_body_has_no_bytes_holds_none() -> None:
    budget = BodyBudget(TOTAL, LARGEST)
    with budget.hold("empty") as body, budget.hold("kept") as call:
        body.grow(0)
        call.keep(0)
        assert len(budget) == 0
        body.grow(1)
        body.grow(0)
        assert len(budget) == 1
    assert len(budget) == 0


def test_a_refusal_says_whether_the_budget_or_the_callers_own_share_is_full() -> None:
    budget = BodyBudget(4 * LARGEST, LARGEST)
    with contextlib.ExitStack() as stack:
        stack.enter_context(budget.hold("one")).grow(LARGEST)
        with pytest.raises(TooManyBodyBytes, match="The unanswered requests of one caller may have no more bytes"):
            budget.hold("one").grow(1)
        stack.enter_context(budget.hold("two")).grow(LARGEST)
        stack.enter_context(budget.hold("three")).grow(LARGEST)
        stack.enter_context(budget.hold("four")).grow(LARGEST // 2)
        with pytest.raises(TooManyBodyBytes, match="The server is overloaded"):
            budget.hold("five").grow(LARGEST)


def test_a_body_counts_as_it_grows_and_a_refused_part_does_not() -> None:
    budget = BodyBudget(TOTAL, LARGEST)
    with budget.hold("slow") as body:
        for _ in range(16):
            body.grow(LARGEST)
        with pytest.raises(TooManyBodyBytes):
            body.grow(LARGEST)
        assert budget.held_bytes == 16 * LARGEST
    assert budget.held_bytes == 0


def test_what_is_kept_of_a_body_may_replace_it_in_a_full_share_but_not_exceed_it() -> None:
    largest = 2 * EXTRA_BYTES
    budget = BodyBudget(4 * largest, largest)
    with budget.hold("ada") as call:
        with budget.hold("ada") as body:
            body.grow(largest)
            call.keep(largest)
        assert budget.held_bytes == largest
        call.keep(EXTRA_BYTES)
        with pytest.raises(TooManyBodyBytes):
            call.keep(EXTRA_BYTES)
        assert budget.held_bytes == largest + EXTRA_BYTES
        call.clear()
        assert budget.held_bytes == 0
        call.keep(2 * largest)
        assert budget.held_bytes == largest
    assert budget.held_bytes == 0


def test_a_few_callers_leave_room_for_the_next_one() -> None:
    budget = BodyBudget(TOTAL, LARGEST)
    bodies = []
    for caller in range(5):
        with contextlib.suppress(TooManyBodyBytes):
            while True:
                body = budget.hold(caller)
                body.grow(LARGEST)
                bodies.append(body)
    budget.hold("next").grow(LARGEST)
    assert budget.held_bytes < TOTAL


def test_a_caller_holds_no_more_than_it_leaves_free() -> None:
    budget = BodyBudget(TOTAL, LARGEST)
    for caller in range(3):
        budget.hold(caller).grow(TOTAL // 4)
    left = TOTAL // 4
    with pytest.raises(TooManyBodyBytes):
        budget.hold("next").grow(left // 2 + 1)
    budget.hold("next").grow(left // 2)


def test_the_largest_body_always_fits() -> None:
    BodyBudget(1, LARGEST).hold("alone").grow(LARGEST)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, LARGEST)), max_size=400))
def test_whatever_callers_send_the_budget_is_kept_and_nothing_stays(sent: list[tuple[int, int]]) -> None:
    budget = BodyBudget(TOTAL, LARGEST)
    held = dict.fromkeys(range(6), 0)
    with contextlib.ExitStack() as stack:
        for caller, size in sent:
            body = stack.enter_context(budget.hold(caller))
            with contextlib.suppress(TooManyBodyBytes):
                body.grow(size)
                held[caller] += size
        assert max(held.values()) <= TOTAL // 4
        assert budget.held_bytes == sum(held.values()) <= TOTAL
        assert len(budget) == sum(size > 0 for size in held.values())
    assert budget.held_bytes == len(budget) == 0


def test_what_is_never_refused_may_take_an_allowance_above_the_share_and_no_more() -> None:
    budget = BodyBudget(64 * EXTRA_BYTES, LARGEST)
    with budget.hold("greedy") as body, budget.hold("greedy") as never_refused:
        body.grow(budget.share)
        never_refused.grow_to(EXTRA_BYTES, EXTRA_BYTES)
        with pytest.raises(TooManyBodyBytes):
            budget.hold("greedy").grow_to(1, EXTRA_BYTES)
        budget.hold("other").grow(1)


def test_the_allowances_of_all_callers_together_are_bounded() -> None:
    budget = BodyBudget(TOTAL, LARGEST)
    for caller in range(100):
        with contextlib.suppress(TooManyBodyBytes):
            while True:
                budget.hold(caller).grow_to(1 + EXTRA_BYTES // 16, EXTRA_BYTES)
    assert budget.held_bytes <= TOTAL + EXTRA_BYTES


def test_a_body_counts_as_the_most_that_it_was_said_to_take_and_at_most_as_a_share() -> None:
    budget = BodyBudget(TOTAL, LARGEST)
    with budget.hold("ada") as body:
        for size, held in ((100, 100), (50, 100), (300, 300), (budget.share + 1, budget.share)):
            body.grow_to(size)
            assert budget.held_bytes == held
    assert budget.held_bytes == 0
