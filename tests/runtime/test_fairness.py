"""The order in which callers get places: nobody waits forever or is forgotten, and shares are respected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.runtime.fairness import FairQueue

CALLERS = st.sampled_from(["a", "b", "c", None])
PLACES = 6


@pytest.fixture
def queue() -> FairQueue[int]:
    return FairQueue()


def order(queue: FairQueue[int], places: int = 100) -> list[int]:
    """Give out places until nobody waits. Each place becomes free again at once."""
    given = []
    while (next_one := queue.next(places)) is not None:
        caller, item = next_one
        queue.free(caller)
        given.append(item)
    return given


def test_callers_have_their_turn_one_after_the_other(queue: FairQueue[int]) -> None:
    for number in range(4):
        queue.add("greedy", number)
    queue.add("one", 10)
    queue.add("another", 20)
    assert order(queue) == [0, 10, 20, 1, 2, 3]


def test_one_caller_alone_is_served_in_the_order_of_arrival_and_may_have_every_place(queue: FairQueue[int]) -> None:
    for number in range(4):
        queue.add("alone", number)
    given = [queue.next(4) for _ in range(4)]
    assert given == [("alone", number) for number in range(4)]
    assert queue.held_by("alone") == 4
    assert queue.next(4) is None


def test_items_that_go_first_take_turns_too(queue: FairQueue[int]) -> None:
    queue.add("one", 1)
    queue.add("other", 2, first=True)
    queue.add("other", 3, first=True)
    queue.add("third", 4, first=True)
    assert order(queue) == [2, 4, 3, 1]


def test_a_caller_with_half_of_the_places_comes_after_all_others_even_with_what_comes_first(
    queue: FairQueue[int],
) -> None:
    for _ in range(2):
        queue.take("greedy")
    queue.add("greedy", 1, first=True)
    queue.add("other", 2)
    assert [queue.next(4), queue.next(4)] == [("other", 2), ("greedy", 1)]


def test_a_removed_item_gets_no_place(queue: FairQueue[int]) -> None:
    queue.add("a", 1)
    queue.add("a", 2, first=True)
    queue.remove("a", 2)
    queue.remove("a", 2)
    queue.remove("b", 1)
    assert (queue.size, queue.callers, queue.waiting_of("a")) == (1, 1, 1)
    assert order(queue) == [1]
    assert (queue.size, queue.callers, queue.waiting_of("a")) == (0, 0, 0)


@given(waiting=st.lists(CALLERS, max_size=40), late=st.sampled_from(["d", "a"]))
def test_whoever_comes_last_waits_for_no_more_than_one_turn_of_each_caller(
    waiting: list[str | None], late: str
) -> None:
    queue: FairQueue[int] = FairQueue()
    for number, caller in enumerate(waiting):
        queue.add(caller, number)
    queue.add("new", -1)
    assert order(queue).index(-1) <= len(set(waiting))


class Places(RuleBasedStateMachine):
    """Compares a queue that gives out places with a model that does the same by examining everything."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: FairQueue[int] = FairQueue()
        self.held: list[str | None] = []
        self.waiting: list[tuple[str | None, int, bool]] = []
        self.number = 0

    @rule(caller=CALLERS, first=st.booleans())
    def arrive(self, caller: str | None, first: bool) -> None:
        self.number += 1
        if len(self.held) < PLACES and not self.waiting:
            self.queue.take(caller)
            self.held.append(caller)
        else:
            self.queue.add(caller, self.number, first=first)
            self.waiting.append((caller, self.number, first))

    @rule(which=st.integers(0, 100))
    def leave(self, which: int) -> None:
        if not self.held:
            return
        self.queue.free(self.held.pop(which % len(self.held)))
        given = self.queue.next(PLACES)
        if given is None:
            assert not self.waiting
            return
        (entry,) = [entry for entry in self.waiting if entry[:2] == given]
        fair = [other for other in self.waiting if self.held.count(other[0]) < PLACES // 2]
        if fair:
            assert entry in fair
            assert entry[2] == any(first for _, _, first in fair)
        earlier = [other for other in self.waiting if other[0] == entry[0] and other[2] == entry[2]]
        assert entry == earlier[0]
        self.waiting.remove(entry)
        self.held.append(entry[0])

    @rule(which=st.integers(0, 100))
    def give_up(self, which: int) -> None:
        if self.waiting:
            caller, item, _ = self.waiting.pop(which % len(self.waiting))
            self.queue.remove(caller, item)

    @invariant()
    def it_knows_who_is_there(self) -> None:
        callers = {caller for caller, _, _ in self.waiting}
        assert (self.queue.size, self.queue.callers) == (len(self.waiting), len(callers))
        for caller in ("a", "b", "c", None):
            assert self.queue.held_by(caller) == self.held.count(caller)
            assert self.queue.waiting_of(caller) == sum(other == caller for other, _, _ in self.waiting)


TestPlaces = Places.TestCase
