"""The report on overload draws the right conclusions from its measurements."""

from __future__ import annotations

import pytest

from bench.arrivals import Observed
from bench.options import Options
from bench.overload import EASY, HARD, HARD_WITHOUT, PEAK, Refusals, Run, summary
from bench.report import Section


def run(load: str, goodput: float, p99_ms: float, *, number: int = 0, busy: float = 1.0) -> Run:
    return Run(load, number, Observed(goodput, goodput, 0.0, 0.0, p99_ms / 2, p99_ms), busy)


def report(*, hard: float = 180.0, hard_p99_ms: float = 90.0, refusal_us: float = 20.0, busy: float = 1.0) -> Section:
    runs = [
        run(PEAK, 200.0, 50.0, busy=busy),
        run(EASY, 160.0, 30.0),
        run(HARD, hard, hard_p99_ms),
        run(HARD_WITHOUT, 20.0, 1000.0),
    ]
    return summary(Options(rounds=1), runs, [Refusals(0, refusal_us, 18.0)])


def verdicts(section: Section) -> list[bool | None]:
    return [verdict.met for verdict in section.verdicts]


def test_a_replica_that_keeps_its_goodput_and_its_latency_and_refuses_cheaply_passes() -> None:
    assert verdicts(report()) == [True, True, True]
    assert "90%; without admission control 10%" in report().text()


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        pytest.param(report(hard=179.0), [False, True, True], id="goodput"),
        pytest.param(report(hard_p99_ms=91.0), [True, False, True], id="latency"),
        pytest.param(report(refusal_us=23.5), [True, True, False], id="refusals"),
    ],
)
def test_each_goal_can_be_missed_alone(section: Section, expected: list[bool]) -> None:
    assert verdicts(section) == expected


def test_a_latency_of_calls_that_nobody_waited_for_is_shown_as_at_least() -> None:
    markdown = report().text()
    assert "≥ 1,000" in markdown
    assert "3.0 ×; without admission control ≥ 33.3 ×" in markdown


def test_each_round_is_judged_by_its_own_peak() -> None:
    runs = []
    for number, speed in enumerate((1.0, 0.5, 0.25)):  # the machine gets slower
        loads = ((PEAK, 200.0), (EASY, 160.0), (HARD, 190.0), (HARD_WITHOUT, 20.0))
        runs += [run(load, rate * speed, 50.0, number=number) for load, rate in loads]
    section = summary(Options(rounds=3), runs, [Refusals(0, 20.0, 18.0)])
    assert section.verdicts[0].measured == "95%; without admission control 10%"


def test_a_peak_that_was_found_without_a_whole_core_is_pointed_out() -> None:
    assert "Disturbed: the peak was found with less than 90% of a core." in report(busy=0.5).markdown
    assert "Disturbed" not in report().markdown
