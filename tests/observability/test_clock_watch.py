"""Comparisons of a process's clock with the times that servers report."""

from __future__ import annotations

import logging

import pytest
from prometheus_client import CollectorRegistry

from gateway.observability.clock_watch import OFF_SECONDS, RIGHT_SECONDS, ClockSource, ClockWatch, Reading
from tests.clocks import Clock

NOW = 1_000_000.0
LITTLE = 0.01


@pytest.fixture
def clock() -> Clock:
    return Clock(0.0)


@pytest.fixture
def watch(clock: Clock) -> ClockWatch:
    return ClockWatch(clock)


def reading(ahead: float, *, took: float = LITTLE, step: float = 0.001) -> Reading:
    """Return a reading of a clock that ours is ahead of."""
    return Reading(NOW - ahead, step, NOW, took)


@pytest.mark.parametrize(
    ("taken", "offset"),
    [
        (reading(3600), 3600 - LITTLE - 0.001),
        (reading(-3600), -3600),
        (reading(0.005), 0),
        (reading(0.9, step=1), 0),
        (reading(4, took=4), 0),
        (reading(-0.5, took=4), -0.5),
    ],
    ids=["ahead", "behind", "within the answer's time", "within a step", "just explained", "told later than now"],
)
def test_only_what_the_answer_s_time_cannot_explain_counts(taken: Reading, offset: float) -> None:
    assert taken.offset == pytest.approx(offset)


@pytest.mark.parametrize("ahead", [3600.0, -3600.0])
def test_a_clock_that_is_off_is_logged_once_and_once_more_when_it_is_right_again(
    watch: ClockWatch, clock: Clock, caplog: pytest.LogCaptureFixture, ahead: float
) -> None:
    for _ in range(3):
        watch.compare(ClockSource.REDIS, reading(ahead))
    for _ in range(3):
        clock.now += RIGHT_SECONDS
        watch.compare(ClockSource.REDIS, reading(0))
    told = [(record.levelno, record.message, vars(record)["source"]) for record in caplog.records]
    assert told == [
        (logging.WARNING, "clock is off", "redis"),
        (logging.WARNING, "clock is right again", "redis"),
    ]
    assert vars(caplog.records[0])["seconds"] == pytest.approx(ahead, abs=0.1)


def test_one_of_two_servers_whose_clock_is_off_is_logged_once(
    watch: ClockWatch, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(10):
        clock.now += RIGHT_SECONDS / 3
        watch.compare(ClockSource.REDIS, reading(60))
        watch.compare(ClockSource.REDIS, reading(0))
    assert [record.message for record in caplog.records] == ["clock is off"]
    assert watch.offsets() == {"redis": pytest.approx(60, abs=0.1)}


def test_small_differences_are_shown_but_not_logged(watch: ClockWatch, caplog: pytest.LogCaptureFixture) -> None:
    watch.compare(ClockSource.REDIS, reading(-OFF_SECONDS + LITTLE))
    watch.compare(ClockSource.IDENTITY_PROVIDER, reading(0))
    assert watch.offsets() == {"redis": pytest.approx(-OFF_SECONDS + LITTLE), "identity_provider": 0}
    assert not caplog.records


def test_an_answer_that_took_long_proves_nothing(watch: ClockWatch, clock: Clock) -> None:
    watch.compare(ClockSource.REDIS, reading(3600))
    clock.now += RIGHT_SECONDS
    watch.compare(ClockSource.REDIS, reading(3600, took=3600))
    assert watch.offsets()["redis"] == pytest.approx(3600, abs=0.1)


def test_metrics_show_the_last_comparison_by_source(watch: ClockWatch) -> None:
    registry = CollectorRegistry()
    registry.register(watch)
    assert registry.get_sample_value("gateway_clock_offset_seconds", {"source": "redis"}) is None
    watch.compare(ClockSource.REDIS, reading(-60))
    assert registry.get_sample_value("gateway_clock_offset_seconds", {"source": "redis"}) == -60
