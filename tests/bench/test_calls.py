"""The report on calls draws the right conclusion from what was measured."""

from __future__ import annotations

from bench.calls import CASES, OURS, RAW, SDK, Report, Run
from bench.load import Measurement
from bench.options import Options


def measured(requests: int, *, cpu_seconds: float = 1.0, wrong: list[str] | None = None) -> Measurement:
    """One second under load; the latencies are 1 ms, 2 ms and so on."""
    return Measurement(
        latencies_ns=[number * 1_000_000 for number in range(1, requests + 1)],
        elapsed_seconds=1.0,
        server_cpu_seconds=cpu_seconds,
        load_cpu_seconds=0.5,
        wrong=wrong or [],
    )


def report(*ours: Measurement, sdk: int = 100) -> Report:
    """A report with one round for each measurement of ours, the same in every case."""
    runs = [Run(RAW, "echo", 0, measured(1000), 20.0)]
    for number, measurement in enumerate(ours):
        for case in CASES:
            runs += [Run(SDK, case, number, measured(sdk), 70.0), Run(OURS, case, number, measurement, 60.0)]
    return Report(runs, Options(rounds=len(ours), seconds=1.0, connections=4))


def test_twice_as_fast_as_the_sdk_passes() -> None:
    passed = report(measured(200))
    assert passed.ratios("echo") == (0.2, 2.0, 2.0)
    assert "PASSED" in passed.markdown()


def test_less_than_twice_as_fast_is_named_with_its_cases() -> None:
    assert f"BELOW the goal in: {', '.join(CASES)}" in report(measured(199)).markdown()


def test_the_median_of_the_rounds_counts() -> None:
    assert report(measured(100), measured(300), measured(900)).ratios("retry leg").sdk == 3.0


def test_a_wrong_answer_outweighs_every_speed() -> None:
    fast_and_wrong = report(measured(900, wrong=["expected 1, got 2"]))
    assert len(fast_and_wrong.wrong) == len(CASES)
    assert "WRONG" in fast_and_wrong.markdown()
    assert "PASSED" not in fast_and_wrong.markdown()


def test_on_a_disturbed_machine_cpu_times_decide_and_the_report_says_so() -> None:
    disturbed = report(measured(110, cpu_seconds=0.5)).markdown()
    assert "PASSED. Goal: at least 2 × the mcp SDK in every case, by CPU time." in disturbed
    assert "Disturbed: less than 90% of a core for ours" in disturbed


def test_programs_get_all_numbers() -> None:
    document = report(measured(200), measured(200)).section().document
    assert document["ratios"]["echo"] == {"raw": 0.2, "sdk": 2.0, "sdk_by_cpu": 2.0}
    assert len(document["runs"]) == 1 + 2 * 2 * len(CASES)
    (ours,) = [median for median in document["medians"] if (median["server"], median["case"]) == (OURS, "echo")]
    assert (ours["p50_ms"], ours["p99_ms"], ours["requests_per_second"]) == (101.0, 199.0, 200.0)
