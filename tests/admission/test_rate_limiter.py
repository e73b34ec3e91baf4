"""Each caller gets a rate and a burst, independent of the others, in bounded memory."""

from __future__ import annotations

from collections.abc import Hashable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admission.rate_limiter import RateLimiter
from gateway.errors import RateLimited
from gateway.settings.rates import Rate
from tests.clocks import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock(1_000_000.3)


def admitted(limiter: RateLimiter, caller: Hashable = "alice") -> bool:
    try:
        limiter.admit(caller)
    except RateLimited:
        return False
    return True


def count_admitted(limiter: RateLimiter, tries: int, caller: Hashable = "alice") -> int:
    return sum(admitted(limiter, caller) for _ in range(tries))


@pytest.mark.parametrize(
    ("rate", "burst"),
    [(Rate(100, 1, 200), 200), (Rate(1, 1, 1), 1), (Rate(600, 60, 600), 600), (Rate(3, 3600, 2), 2)],
)
def test_a_burst_passes_at_once_and_not_one_more(clock: Clock, rate: Rate, burst: int) -> None:
    limiter = RateLimiter(rate, clock)
    assert count_admitted(limiter, 3 * burst + 1) == burst


def test_then_requests_pass_at_the_rate(clock: Clock) -> None:
    limiter = RateLimiter(Rate(10, 1, 5), clock)
    assert count_admitted(limiter, 100) == 5
    for _ in range(50):
        clock.now += 0.1
        assert count_admitted(limiter, 3) == 1


def test_a_caller_that_waits_gets_the_whole_burst_back_and_no_more(clock: Clock) -> None:
    limiter = RateLimiter(Rate(10, 1, 5), clock)
    assert count_admitted(limiter, 9) == 5
    clock.now += 3600
    assert count_admitted(limiter, 9) == 5


@pytest.mark.parametrize(("rate", "seconds"), [(Rate(100, 1, 1), 1), (Rate(1, 60, 1), 60), (Rate(1, 3600, 1), 3600)])
def test_a_refusal_says_after_how_many_whole_seconds_the_next_request_passes(
    clock: Clock, rate: Rate, seconds: int
) -> None:
    limiter = RateLimiter(rate, clock)
    limiter.admit("alice")
    with pytest.raises(RateLimited) as caught:
        limiter.admit("alice")
    assert caught.value.retry_after_seconds == seconds
    clock.now += caught.value.retry_after_seconds
    assert admitted(limiter)


def test_refused_requests_take_nothing_from_later_ones(clock: Clock) -> None:
    limiter = RateLimiter(Rate(1, 1, 1), clock)
    limiter.admit("alice")
    assert count_admitted(limiter, 10_000) == 0
    clock.now += 1
    assert admitted(limiter)


def test_callers_do_not_share_a_bucket(clock: Clock) -> None:
    limiter = RateLimiter(Rate(1, 1, 3), clock)
    assert count_admitted(limiter, 100, "alice") == 3
    assert count_admitted(limiter, 100, "bob") == 3


def test_many_callers_do_not_grow_the_memory(clock: Clock) -> None:
    limiter = RateLimiter(Rate(1, 3600, 1), clock, max_callers=100)
    for number in range(10_000):
        assert admitted(limiter, number)
        assert len(limiter) <= 100


def test_recent_callers_are_remembered_while_others_come(clock: Clock) -> None:
    limiter = RateLimiter(Rate(1, 3600, 2), clock, max_callers=3)
    limiter.admit("alice")
    for number in range(2):
        limiter.admit(number)
    limiter.admit("alice")
    for number in range(2, 4):
        limiter.admit(number)
        assert not admitted(limiter)


def test_callers_that_stopped_calling_are_forgotten(clock: Clock) -> None:
    limiter = RateLimiter(Rate(1, 1, 1), clock)
    for number in range(100):
        limiter.admit(number)
    clock.now += 10
    for _ in range(100):
        clock.now += 1
        limiter.admit("alice")
    assert len(limiter) == 1


@given(
    rate=st.builds(Rate, st.integers(1, 1000), st.sampled_from([1, 60, 3600]), st.integers(1, 50)),
    waits=st.lists(st.floats(0, 100), max_size=60),
    start=st.floats(0, 1e7),
)
def test_no_stretch_of_time_sees_more_than_the_burst_and_the_rate(rate: Rate, waits: list[float], start: float) -> None:
    clock = Clock(start)
    limiter = RateLimiter(rate, clock)
    passed: list[float] = []
    for wait in waits:
        clock.now += wait
        if admitted(limiter):
            passed.append(clock.now)
    for first, begin in enumerate(passed):
        for last, end in enumerate(passed[first:], first):
            allowed = rate.burst + (end - begin) * rate.requests / rate.seconds
            assert last - first + 1 <= allowed + 0.02
