"""Requests that arrive before anybody knows whose they are: those of one credential leave room for all others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admission.arrivals import Arrivals
from gateway.admission.inflight import InFlight, InFlightVisit
from gateway.admission.leg_limit import LEAST, AdaptiveLimit, FixedLimit, Limit
from gateway.admission.shedding import LONGEST_WINDOW_SECONDS
from gateway.errors import Overloaded
from tests.clocks import Clock

TARGET = 0.05
GREEDY = b"Bearer greedy"
OTHER = b"Bearer other"
FORGED = b"Bearer forged"


def is_verified(credential: bytes) -> bool:
    return credential in {GREEDY, OTHER}


def adaptive(value: int) -> AdaptiveLimit:
    limit = AdaptiveLimit(TARGET)
    limit.value = value
    return limit


def admission(limit: Limit) -> InFlight:
    return InFlight(limit, TARGET, Clock())


def all_that_come(load: InFlight, credential: Callable[[int], bytes]) -> list[InFlightVisit]:
    """Let requests arrive until one is refused."""
    visits: list[InFlightVisit] = []
    while (visit := load.arrive(credential(len(visits)), is_verified)) is not None:
        visits.append(visit)
    return visits


def same(credential: bytes) -> Callable[[int], bytes]:
    return lambda _number: credential


def different(number: int) -> bytes:
    return b"%b %d" % (FORGED, number)


def spelled(number: int) -> bytes:
    """Write one header in many ways."""
    return (b"Bearer", b"bearer", b"BEARER")[number % 3] + b" " * (1 + number // 3) + b"greedy"


def followed(number: int) -> bytes:
    """Write one header with many blanks and tabs behind it, which HTTP parsers keep."""
    return GREEDY + b"".join(b" \t"[bit : bit + 1] for bit in map(int, f"{number:b}"))


@pytest.mark.parametrize("spelling", [spelled, followed])
@pytest.mark.parametrize("value", [4, 16, 128])
def test_one_token_in_many_spellings_leaves_room_for_another_one(value: int, spelling: Callable[[int], bytes]) -> None:
    load = admission(adaptive(value))
    visits = all_that_come(load, spelling)
    other = load.arrive(OTHER, is_verified)
    assert len(visits) <= value + value // 4 + 1
    assert other is not None
    for visit in (*visits, other):
        visit.leave()
    assert load.in_flight == 0


@pytest.mark.parametrize("value", [LEAST, 16, 128])
@pytest.mark.parametrize("credential", [GREEDY, FORGED, b""])
@pytest.mark.parametrize("make", [adaptive, FixedLimit])
def test_one_credential_leaves_room_for_the_requests_of_others(
    make: Callable[[int], Limit], credential: bytes, value: int
) -> None:
    load = admission(make(value))
    assert len(all_that_come(load, same(credential))) >= value
    assert len(all_that_come(load, same(OTHER))) >= max(1, value // 8)


@pytest.mark.parametrize("value", [LEAST, 16, 128])
def test_forged_tokens_that_all_differ_keep_out_nobody_whose_token_was_verified(value: int) -> None:
    load = admission(adaptive(value))
    forged = all_that_come(load, different)
    assert value < len(forged) < 3 * value  # they are bounded
    assert len(all_that_come(load, same(OTHER))) >= value // 2


def test_only_a_request_for_which_there_may_be_no_room_has_its_token_looked_up() -> None:
    looked_up: list[bytes] = []

    def look_up(credential: bytes) -> bool:
        looked_up.append(credential)
        return True

    load = admission(FixedLimit(16))
    for number in range(16 + 8):
        assert load.arrive(different(number), look_up) is not None
    assert not looked_up


def test_nobody_is_let_in_who_would_be_refused_as_soon_as_the_caller_is_known() -> None:
    load = admission(FixedLimit(1))
    visit = load.arrive(GREEDY, is_verified)
    assert visit is not None
    assert visit.enter("greedy", goes_on=False) is None
    assert load.arrive(OTHER, is_verified) is None


def test_a_request_whose_body_came_late_competes_only_with_those_whose_callers_are_known() -> None:
    load = admission(FixedLimit(16))
    late = load.arrive(OTHER, is_verified)
    assert late is not None
    late.step_aside()
    all_that_come(load, different)
    assert late.enter("other", goes_on=False) is None


async def test_of_all_that_were_let_in_only_as_many_wait_as_there_is_room_for() -> None:
    load = admission(FixedLimit(16))
    visits = all_that_come(load, different)
    assert len(visits) > 16 + 8
    waiting: list[asyncio.Task[None]] = []
    refused = 0
    for number, visit in enumerate(visits):
        try:
            line = visit.enter(f"caller {number}", goes_on=False)
        except Overloaded:
            refused += 1
            continue
        if line is not None:
            waiting.append(asyncio.ensure_future(line))
            await asyncio.sleep(0)
    assert (load.in_flight, load.waiting, refused) == (16 + 8, 8, len(visits) - 16 - 8)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


def test_without_identity_one_caller_may_use_all_of_the_room() -> None:
    load = admission(FixedLimit(16))
    for _ in range(16 + 8):
        assert load.arrive() is not None
    assert load.arrive() is None


def test_forged_tokens_neither_lower_nor_raise_the_limit_and_their_waits_are_not_shown() -> None:
    limit, clock = AdaptiveLimit(TARGET), Clock()
    load = InFlight(limit, TARGET, clock)
    first = limit.value
    visit = load.arrive(OTHER)
    assert visit is not None
    clock.now += 0.9 * TARGET  # neither so long that the limit falls, nor so short that it rises
    visit.begin()
    assert visit.enter("other", goes_on=False) is None
    visit.leave()
    assert load.queue_wait_p90 == pytest.approx(0.9 * TARGET)
    for wait in (LONGEST_WINDOW_SECONDS + 0.1, 0.0) * 10:
        visits = all_that_come(load, different)
        clock.now += wait
        for visit in visits:
            visit.begin()
            visit.step_aside()
            visit.leave()
        assert load.queue_wait_p90 == 0
    assert limit.value == first


@pytest.mark.parametrize("value", [LEAST, 16, 30])
async def test_a_caller_that_has_filled_the_waiting_room_since_the_limit_fell_keeps_nobody_out(value: int) -> None:
    crowd = Crowd(adaptive(60))
    await crowd.do("come", 75)
    await crowd.do("enter", 75)
    crowd.limit.value = value
    await crowd.do("end", 60 - value)
    await crowd.do("go", crowd.load.waiting - value // 2)
    assert (crowd.load.in_flight, crowd.load.waiting) == (value + value // 2, value // 2)
    assert await is_served(crowd.load)
    await crowd.leave()


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40))
def test_what_is_counted_is_given_back(steps: Sequence[tuple[int, bool]]) -> None:
    arrivals = Arrivals()
    counted: list[bytes | None] = []
    for number, comes in steps:
        credential = different(number) if number else None
        if comes:
            arrivals.add(credential)
            counted.append(credential)
        elif credential in counted:
            arrivals.release(credential)
            counted.remove(credential)
        assert arrivals.size == len(counted)
    for credential in counted:
        arrivals.release(credential)
    # Nothing is left that could hold anybody back.
    assert arrivals.size == 0
    assert all(arrivals.has_room(different(number), 1, 1) for number in range(4))


class Crowd:
    """One caller who does anything, beside forged tokens."""

    def __init__(self, limit: AdaptiveLimit | FixedLimit) -> None:
        self.load = admission(limit)
        self.limit = limit
        self._arrived: list[InFlightVisit] = []
        self._running: list[InFlightVisit] = []
        self._waiting: list[tuple[InFlightVisit, asyncio.Task[None]]] = []
        self._forged: list[InFlightVisit] = []
        self._numbers = 0

    async def do(self, what: str, count: int) -> None:
        """Let up to so many requests do something."""
        if what == "limit":
            if isinstance(self.limit, AdaptiveLimit):
                self.limit.value = max(LEAST, count)
            return
        for _ in range(count):
            await getattr(self, what)()

    async def come(self) -> None:
        visit = self.load.arrive(GREEDY, is_verified)
        if visit is not None:
            self._arrived.append(visit)

    async def forge(self) -> None:
        self._numbers += 1
        visit = self.load.arrive(different(self._numbers), is_verified)
        if visit is not None:
            self._forged.append(visit)

    async def refuse(self) -> None:
        for visits in (self._forged, self._arrived):
            if visits:
                visits.pop(0).leave()

    async def step_aside(self) -> None:
        if self._arrived:
            self._arrived[0].step_aside()
            self._arrived.append(self._arrived.pop(0))

    async def enter(self) -> None:
        if not self._arrived:
            return
        visit = self._arrived.pop(0)
        visit.begin()
        try:
            waiting = visit.enter("greedy", goes_on=False)
        except Overloaded:
            visit.leave()
            return
        if waiting is None:
            self._running.append(visit)
        else:
            self._waiting.append((visit, asyncio.ensure_future(waiting)))
        await self._look()

    async def end(self) -> None:
        if self._running:
            self._running.pop(0).leave()
        await self._look()

    async def go(self) -> None:
        """The client of a waiting request disconnects."""
        if self._waiting:
            visit, task = self._waiting.pop(0)
            await gone(visit, task)

    async def _look(self) -> None:
        """Find out which waiting requests have a place now."""
        for _ in range(3):
            await asyncio.sleep(0)
        self._running += [visit for visit, task in self._waiting if task.done()]
        self._waiting = [(visit, task) for visit, task in self._waiting if not task.done()]

    async def leave(self) -> None:
        for visit in (*self._arrived, *self._forged, *self._running):
            visit.leave()
        for visit, task in self._waiting:
            await gone(visit, task)


async def gone(visit: InFlightVisit, task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    visit.leave()


async def is_served(load: InFlight) -> bool:
    """Return whether a request of another caller gets a place or may wait for one."""
    visit = load.arrive(OTHER, is_verified)
    if visit is None:
        return False
    visit.begin()
    try:
        waiting = visit.enter("other", goes_on=False)
    except Overloaded:
        visit.leave()
        return False
    if waiting is None:
        visit.leave()
        return True
    task = asyncio.ensure_future(waiting)
    await asyncio.sleep(0)
    await gone(visit, task)
    return True


DEEDS = ["come", "forge", "refuse", "step_aside", "enter", "end", "go", "limit"]
limits: st.SearchStrategy[AdaptiveLimit | FixedLimit] = st.integers(LEAST, 40).flatmap(
    lambda value: st.sampled_from([adaptive(value), FixedLimit(value)])
)


@given(limits, st.lists(st.tuples(st.sampled_from(DEEDS), st.integers(0, 60)), max_size=30))
async def test_whatever_one_caller_and_forged_tokens_do_the_next_request_of_another_caller_is_admitted(
    limit: AdaptiveLimit | FixedLimit, deeds: Sequence[tuple[str, int]]
) -> None:
    crowd = Crowd(limit)
    for what, count in deeds:
        await crowd.do(what, count)
        assert await is_served(crowd.load), what
    await crowd.leave()
    assert (crowd.load.in_flight, crowd.load.waiting) == (0, 0)
