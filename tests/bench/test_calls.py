"""The report on calls draws the right conclusions from its measurements."""

from __future__ import annotations

from typing import Any

import pytest

from bench import calls
from bench.calls import (
    BASIC,
    CASES,
    ECHO,
    FIRST,
    FIRST_BY_SCHEMA,
    FIXED,
    MANY,
    OURS,
    RAW,
    RETRY,
    SDK,
    SECOND,
    TWO_REPLICAS,
    Report,
    Run,
)
from bench.goals import (
    BUDGETS,
    ECHO_BESIDE_RAW,
    ECHO_BESIDE_SDK,
    FIRST_BESIDE_SDK,
    MANY_TOOLS,
    P99_BESIDE_RAW,
    P999,
    RESIDENT,
    RETRY_BESIDE_SDK,
    SCHEMA_BESIDE_MODEL,
    Goal,
)
from bench.load import Measurement
from bench.options import Options


def measured(requests: int, *, cpu_seconds: float = 1.0, wrong: list[str] | None = None) -> Measurement:
    """Return one second under load, with latencies spread evenly up to 5 ms."""
    return Measurement(
        latencies_ns=[number * 5_000_000 // requests for number in range(1, requests + 1)],
        elapsed_seconds=1.0,
        server_cpu_seconds=cpu_seconds,
        load_cpu_seconds=0.5,
        wrong=wrong or [],
    )


def report(
    *ours: Measurement,
    sdk: int = 100,
    many: int | None = None,
    by_schema: int | None = None,
    second: int | None = None,
    resident_mib: float = 60.0,
) -> Report:
    """Return a report with one round for each measurement of ours, the same in every case."""
    runs = [Run(RAW, FIXED, 0, measured(1000), 20.0)]
    for number, measurement in enumerate(ours):
        for case in BASIC:
            runs += [Run(SDK, case, number, measured(sdk), 70.0), Run(OURS, case, number, measurement, resident_mib)]
        tools = measurement if many is None else measured(many)
        runs.append(Run(MANY, ECHO, number, tools, 80.0))
        given = measurement if by_schema is None else measured(by_schema)
        runs += [Run(MANY, FIRST, number, measurement, 80.0), Run(MANY, FIRST_BY_SCHEMA, number, given, 80.0)]
        other = measurement if second is None else measured(second)
        runs.append(Run(SECOND, RETRY, number, other, 60.0))
    return Report(runs, Options(rounds=len(ours), seconds=1.0, connections=4))


def missed(report: Report) -> list[Goal]:
    return [verdict.goal for verdict in report.verdicts() if not verdict.met]


def test_what_reaches_all_goals_passes() -> None:
    passed = report(measured(400))
    assert passed.ratio(ECHO, SDK) == (4.0, 4.0)
    assert passed.ratio(ECHO, RAW, peer_case=FIXED) == (0.4, 0.4)
    assert missed(passed) == []
    assert [verdict.goal for verdict in passed.verdicts() if verdict.goal in BUDGETS] == [
        ECHO_BESIDE_RAW,
        ECHO_BESIDE_SDK,
        FIRST_BESIDE_SDK,
        SCHEMA_BESIDE_MODEL,
        RETRY_BESIDE_SDK,
        P99_BESIDE_RAW,
        P999,
        MANY_TOOLS,
        RESIDENT,
    ]


def test_what_is_not_fast_enough_is_named_with_its_case() -> None:
    slow = [ECHO_BESIDE_RAW, ECHO_BESIDE_SDK, FIRST_BESIDE_SDK, RETRY_BESIDE_SDK]
    assert missed(report(measured(399))) == slow


def test_many_tools_may_cost_nothing() -> None:
    assert missed(report(measured(500), many=470)) == [MANY_TOOLS]


def test_a_form_by_a_schema_may_cost_a_little_more_than_one_by_a_model() -> None:
    assert missed(report(measured(500), by_schema=300)) == []
    assert missed(report(measured(500), by_schema=299)) == [SCHEMA_BESIDE_MODEL]


def test_a_leg_may_cost_no_more_where_another_replica_began_the_call() -> None:
    assert report(measured(500), second=500).two_replicas() == (2.0, 2.0)
    assert missed(report(measured(500), second=440)) == [TWO_REPLICAS]


def test_slow_answers_and_much_memory_are_reported() -> None:
    slow = Measurement([11_000_000 * number // 400 + 10_000_000 for number in range(400)], 1.0, 1.0, 0.5)
    told = report(slow, resident_mib=90.0)
    assert missed(told) == [P99_BESIDE_RAW, P999, RESIDENT]
    assert "raw ASGI 4.96 ms" in told.verdicts()[BUDGETS.index(P99_BESIDE_RAW)].measured


def test_the_median_of_the_rounds_counts() -> None:
    assert report(measured(100), measured(300), measured(900)).ratio(RETRY, SDK).by_clock == 3.0


def test_a_wrong_answer_outweighs_every_speed() -> None:
    fast_and_wrong = report(measured(900, wrong=["expected 1, got 2"]))
    assert len(fast_and_wrong.wrong) == len(BASIC) + 4
    assert "WRONG" in fast_and_wrong.markdown()
    assert not fast_and_wrong.section().verdicts


def test_on_a_disturbed_machine_cpu_times_decide_and_the_report_says_so() -> None:
    disturbed = report(measured(210, cpu_seconds=0.5))
    assert missed(disturbed) == []
    assert "so CPU time decides" in disturbed.verdicts()[0].measured
    assert "so CPU time decides" not in report(measured(400)).verdicts()[0].measured
    assert "Disturbed: less than 90% of a core for ours" in disturbed.markdown()


def test_programs_get_all_numbers() -> None:
    document = report(measured(200), measured(200)).section().document
    (beside_sdk,) = [ratio for ratio in document["ratios"] if (ratio["server"], ratio["case"]) == (OURS, ECHO)]
    assert beside_sdk == {"case": ECHO, "server": OURS, "peer": SDK, "by_clock": 2.0, "by_cpu": 2.0}
    assert len(document["runs"]) == 1 + 2 * (2 * len(BASIC) + 4)
    (ours,) = [median for median in document["medians"] if (median["server"], median["case"]) == (OURS, "echo")]
    assert (ours["p50_ms"], ours["p99_ms"], ours["requests_per_second"]) == (2.525, 4.975, 200.0)
    assert {*BASIC, FIRST_BY_SCHEMA} < set(CASES)


QUIET = Measurement([1], elapsed_seconds=1, server_cpu_seconds=0.95)
DISTURBED = Measurement([1], elapsed_seconds=1, server_cpu_seconds=0.5)
LIMITED = Measurement([1], elapsed_seconds=1, server_cpu_seconds=0.5, load_cpu_seconds=0.99)
WRONG = Measurement([1], elapsed_seconds=1, server_cpu_seconds=0.5, wrong=["no"])


@pytest.mark.parametrize(
    ("seen", "kept"),
    [
        ([QUIET, WRONG], QUIET),
        ([DISTURBED, QUIET, WRONG], QUIET),
        ([DISTURBED, DISTURBED, DISTURBED, WRONG], DISTURBED),
        ([LIMITED, WRONG], LIMITED),
        ([WRONG, QUIET], WRONG),
        ([DISTURBED, WRONG, QUIET], WRONG),
    ],
)
def test_a_disturbed_measurement_is_repeated_but_no_wrong_answer_is_dropped(
    monkeypatch: pytest.MonkeyPatch, seen: list[Measurement], kept: Measurement
) -> None:
    following = iter(seen)
    monkeypatch.setattr(calls, "_measure_once", lambda *_: next(following))
    server: Any = None
    target: Any = None
    assert calls._measure(server, target, lambda _: [], Options()) is kept
    assert len(list(following)) == 1
