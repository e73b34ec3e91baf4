"""The log of an outage: one line when it begins, one when it ends."""

from __future__ import annotations

import pytest

from gateway.storage.outage_log import QUIET_SECONDS, Outage
from tests.clocks import Clock


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message.removeprefix("task store is ") for record in caplog.records]


def test_failures_between_things_that_work_are_one_outage(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    outage = Outage(clock)
    for _ in range(10):
        outage.failed(OSError("full"))
        clock.now += 0.9 * QUIET_SECONDS
        outage.worked()
    assert told(caplog) == ["not available"]
    clock.now += 0.2 * QUIET_SECONDS
    outage.worked()
    outage.worked()
    assert told(caplog) == ["not available", "available again"]
    outage.failed(OSError("full"))
    assert told(caplog) == ["not available", "available again", "not available"]


def test_without_a_failure_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    Outage(Clock()).worked()
    assert told(caplog) == []
