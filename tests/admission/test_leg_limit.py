"""How the limit of requests in flight adapts."""

from __future__ import annotations

import pytest

from gateway.admission.leg_limit import FIRST, LEAST, MOST, AdaptiveLimit, FixedLimit

TARGET = 0.05


def settle(limit: AdaptiveLimit, seconds_each: float, windows: int = 100) -> list[int]:
    """Keep the limit and its waiting room full of requests that use the event loop this long; return the limits."""
    values = []
    for _ in range(windows):
        highest = limit.value + limit.value // 2
        limit.adjust(
            highest * seconds_each, turn_seconds=seconds_each or None, highest=highest, running=0, reached=True
        )
        values.append(limit.value)
    return values


@pytest.mark.parametrize("seconds_each", [0.0005, 0.002, 0.005])
def test_it_comes_to_rest_where_requests_wait_just_less_than_the_target(seconds_each: float) -> None:
    limit = AdaptiveLimit(TARGET)
    *_, a, b, c = settle(limit, seconds_each)
    assert a == b == c
    assert 0.6 * TARGET < 1.5 * limit.value * seconds_each <= TARGET


def test_overload_is_answered_within_a_few_windows() -> None:
    limit = AdaptiveLimit(TARGET)
    settle(limit, 0.00001)
    assert limit.value > 1000
    values = settle(limit, 0.005, windows=10)
    assert 1.5 * values[-1] * 0.005 <= TARGET


def test_it_never_falls_so_low_that_nobody_is_served() -> None:
    limit = AdaptiveLimit(TARGET)
    settle(limit, 10.0)
    assert limit.value == LEAST


def test_it_rises_while_it_holds_requests_back_that_hardly_compute() -> None:
    limit = AdaptiveLimit(TARGET)
    settle(limit, 0.0)
    assert limit.value == MOST


def test_it_stays_where_it_is_while_it_holds_nobody_back() -> None:
    limit = AdaptiveLimit(TARGET)
    for _ in range(100):
        limit.adjust(0.001, turn_seconds=None, highest=3, running=0, reached=False)
    assert limit.value == FIRST


def test_pauses_do_not_make_a_replica_refuse_what_it_could_well_serve() -> None:
    limit = AdaptiveLimit(TARGET)
    for _ in range(100):
        limit.adjust(10 * TARGET, turn_seconds=0.0001, highest=limit.value, running=0, reached=True)
    assert limit.value * 0.0001 > 0.6 * TARGET


def test_pauses_with_few_in_flight_say_nothing_about_the_limit() -> None:
    limit = AdaptiveLimit(TARGET)
    for _ in range(100):
        limit.adjust(10 * TARGET, turn_seconds=None, highest=3, running=0, reached=False)
    assert limit.value == FIRST


def test_a_limit_far_below_what_the_loop_gets_through_is_mended_at_once() -> None:
    limit = AdaptiveLimit(TARGET)
    settle(limit, 10.0)
    limit.adjust(0.001, turn_seconds=0.0001, highest=6, running=0, reached=True)
    assert limit.value > 300


def test_a_limit_that_was_set_stays() -> None:
    limit = FixedLimit(7)
    limit.adjust(100.0, turn_seconds=1.0, highest=7, running=0, reached=True)
    limit.adjust(0.0, turn_seconds=None, highest=7, running=0, reached=True)
    assert limit.value == 7


def test_a_crowd_below_the_limit_that_waits_too_long_makes_it_fall() -> None:
    limit = AdaptiveLimit(TARGET)
    for _ in range(20):
        limit.adjust(30 * 0.005, turn_seconds=0.005, highest=30, running=0, reached=False)
    assert 1.5 * limit.value * 0.005 <= 1.5 * TARGET
