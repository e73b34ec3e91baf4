"""The rates of a run, part by part."""

from __future__ import annotations

import pytest

from loadtest.rates import parts, whole
from tests.loadtest.runs import call, leg, marked


def test_each_part_of_a_run_has_its_own_rates() -> None:
    run = marked(
        (5.0, "turn"),
        (5.2, "at the same time"),
        (10.0, "the users stop"),
        calls=[call(t / 10) for t in range(9, 49)] + [call(7.0), call(8.0, "refused"), call(12.0)],
        legs=[leg(0.9), leg(6.0, "shed"), leg(6.0, "refused"), leg(7.0)],
    )

    before, after = parts(run)

    assert (before.began, after.began) == ("the users start", "at the same time")
    assert before.seconds == pytest.approx(4)
    assert before.finished == pytest.approx(10)
    assert (after.finished, after.legs, after.shed, after.refused) == pytest.approx((0.2, 0.6, 0.2, 0.2))
    assert whole(run) == pytest.approx(41 / 9)


def test_a_run_without_events_has_no_parts() -> None:
    assert parts(marked()) == []
    assert whole(marked()) == 0
