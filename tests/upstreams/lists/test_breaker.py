"""When requests to an upstream are refused after failures, and when they are let through again."""

from __future__ import annotations

import pytest

from gateway.upstreams.breaker import (
    FAILURES,
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    PROBE_SECONDS,
    Attempt,
    Breaker,
)
from gateway.upstreams.failures import Reason


class Clocked:
    """A breaker with a clock that tests turn."""

    def __init__(self) -> None:
        self.now = 100.0
        self.changes: list[bool] = []
        self.breaker = Breaker(lambda: self.now, self.changes.append)

    def attempt(self) -> Attempt:
        attempt = self.breaker.start()
        assert attempt is not None
        return attempt

    def fail(self, times: int = 1, reason: Reason = Reason.UNREACHABLE) -> None:
        for _ in range(times):
            self.breaker.failed(self.attempt(), reason)


@pytest.fixture
def clocked() -> Clocked:
    return Clocked()


def test_it_opens_after_repeated_failures_and_says_so_once(clocked: Clocked) -> None:
    clocked.fail(FAILURES - 1)
    assert clocked.breaker.start() is not None
    clocked.fail()
    assert clocked.breaker.start() is None
    assert clocked.changes == [True]


def test_a_success_between_failures_keeps_it_closed(clocked: Clocked) -> None:
    for _ in range(3):
        clocked.fail(FAILURES - 1)
        clocked.breaker.succeeded(clocked.attempt())
    assert not clocked.changes


@pytest.mark.parametrize("reason", [Reason.UNAUTHORIZED, Reason.FORBIDDEN, Reason.TOO_LARGE, Reason.CREDENTIALS])
def test_failures_of_one_caller_or_one_request_do_not_open_it(clocked: Clocked, reason: Reason) -> None:
    clocked.fail(3 * FAILURES, reason)
    assert not clocked.changes


def test_after_the_pause_exactly_one_request_probes(clocked: Clocked) -> None:
    clocked.fail(FAILURES)
    clocked.now += FIRST_PAUSE_SECONDS
    assert clocked.attempt().is_probe
    assert clocked.breaker.start() is None


def test_a_probe_that_is_slow_keeps_other_callers_out_only_for_a_while(clocked: Clocked) -> None:
    clocked.fail(FAILURES)
    clocked.now += FIRST_PAUSE_SECONDS
    slow = clocked.attempt()
    clocked.now += PROBE_SECONDS
    quick = clocked.attempt()
    assert quick.is_probe
    clocked.breaker.abandoned(slow)
    assert clocked.breaker.start() is None
    clocked.breaker.succeeded(quick)
    assert clocked.changes == [True, False]


def test_a_probe_that_succeeds_closes_it(clocked: Clocked) -> None:
    clocked.fail(FAILURES)
    clocked.now += FIRST_PAUSE_SECONDS
    clocked.breaker.succeeded(clocked.attempt())
    assert clocked.changes == [True, False]
    assert not clocked.attempt().is_probe


def test_probes_that_fail_make_the_pauses_longer_up_to_a_limit(clocked: Clocked) -> None:
    clocked.fail(FAILURES)
    pause = FIRST_PAUSE_SECONDS
    for _ in range(10):
        clocked.now += pause - 0.01
        assert clocked.breaker.start() is None
        clocked.now += 0.01
        clocked.fail()
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
    assert pause == LONGEST_PAUSE_SECONDS


def test_a_probe_that_is_cancelled_lets_another_one_through(clocked: Clocked) -> None:
    clocked.fail(FAILURES)
    clocked.now += FIRST_PAUSE_SECONDS
    clocked.breaker.abandoned(clocked.attempt())
    assert clocked.attempt().is_probe


def test_requests_from_before_it_opened_do_not_make_the_pause_longer(clocked: Clocked) -> None:
    early = [clocked.attempt() for _ in range(20)]
    for attempt in early:
        clocked.breaker.failed(attempt, Reason.TIMED_OUT)
    clocked.now += FIRST_PAUSE_SECONDS
    assert clocked.attempt().is_probe
