"""The report on calls draws the right conclusion from what was measured."""

from __future__ import annotations

import pytest

from bench.calls import BASIC, CASES, ECHO, FIXED, MANY, OURS, RAW, RETRY, SDK, Report, Run
from bench.load import Measurement
from bench.options import Options


def measured(requests: int, *, cpu_seconds: float = 1.0, wrong: list[str] | None = None) -> Measurement:
    """One second under load; the latencies spread evenly up to 5 ms."""
    return Measurement(
        latencies_ns=[number * 5_000_000 // requests for number in range(1, requests + 1)],
        elapsed_seconds=1.0,
        server_cpu_seconds=cpu_seconds,
        load_cpu_seconds=0.5,
        wrong=wrong or [],
    )


def report(*ours: Measurement, sdk: int = 100, many: int | None = None, resident_mib: float = 60.0) -> Report:
    """A report with one round for each measurement of ours, the same in every case."""
    runs = [Run(RAW, FIXED, 0, measured(1000), 20.0)]
    for number, measurement in enumerate(ours):
        for case in BASIC:
            runs += [Run(SDK, case, number, measured(sdk), 70.0), Run(OURS, case, number, measurement, resident_mib)]
        tools = measurement if many is None else measured(many)
        runs.append(Run(MANY, ECHO, number, tools, 80.0))
    return Report(runs, Options(rounds=len(ours), seconds=1.0, connections=4))


def failed(report: Report) -> list[str]:
    return [goal.what for goal in report.goals() if not goal.passed]


def test_what_reaches_all_goals_passes() -> None:
    passed = report(measured(400))
    assert passed.ratio(ECHO, SDK) == (4.0, 4.0)
    assert passed.ratio(ECHO, RAW, peer_case=FIXED) == (0.4, 0.4)
    assert failed(passed) == []
    assert "FAILED" not in passed.markdown()


def test_what_is_not_fast_enough_is_named_with_its_case() -> None:
    assert failed(report(measured(399))) == [
        "echo at least 0.40 × raw ASGI",
        *(f"{case} at least 4 × the mcp SDK" for case in BASIC),
    ]


def test_many_tools_may_cost_nothing() -> None:
    assert failed(report(measured(500), many=470)) == ["echo with 1,000 tools at least 0.95 × that with few"]


def test_slow_answers_and_much_memory_are_told() -> None:
    slow = Measurement([11_000_000 * number // 400 + 10_000_000 for number in range(400)], 1.0, 1.0, 0.5)
    assert failed(report(slow, resident_mib=90.0)) == [
        "99th percentile at most 4 × that of raw ASGI, 4.96 ms",
        "99.9th percentile at most 10 ms",
        "at most 90 MB of memory a replica",
    ]


def test_the_median_of_the_rounds_counts() -> None:
    assert report(measured(100), measured(300), measured(900)).ratio(RETRY, SDK).by_clock == 3.0


def test_a_wrong_answer_outweighs_every_speed() -> None:
    fast_and_wrong = report(measured(900, wrong=["expected 1, got 2"]))
    assert len(fast_and_wrong.wrong) == len(BASIC) + 1
    assert "WRONG" in fast_and_wrong.markdown()
    assert "PASSED" not in fast_and_wrong.markdown()


def test_on_a_disturbed_machine_cpu_times_decide_and_the_report_says_so() -> None:
    disturbed = report(measured(210, cpu_seconds=0.5))
    assert failed(disturbed) == []
    assert "Disturbed: less than 90% of a core for ours" in disturbed.markdown()


def test_programs_get_all_numbers() -> None:
    document = report(measured(200), measured(200)).section().document
    assert document["ratios"]["echo"][SDK] == pytest.approx({"by_clock": 2.0, "by_cpu": 2.0})
    assert len(document["runs"]) == 1 + 2 * (2 * len(BASIC) + 1)
    (ours,) = [median for median in document["medians"] if (median["server"], median["case"]) == (OURS, "echo")]
    assert (ours["p50_ms"], ours["p99_ms"], ours["requests_per_second"]) == (2.525, 4.975, 200.0)
    assert set(BASIC) < set(CASES)
