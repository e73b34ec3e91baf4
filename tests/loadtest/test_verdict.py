"""Each measure counts what it says, in its window and for its users; a bound without anything measured is broken."""

from __future__ import annotations

import json
import math

import pytest

from loadtest.rawdata import RawRun
from loadtest.verdict import MEASURES, Bound, Verdict, Window, judge
from tests.loadtest.runs import call, leg, marked, samples

EARLY, LATE = Window(before="turn"), Window(after="turn")
TURN = (5.0, "turn")


def measured(run: RawRun, measure: str, **bound: object) -> float:
    return MEASURES[measure](run, Bound("", measure, **bound))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("measure", "outcome"),
    [
        ("calls_finished", "finished"),
        ("calls_failed", "failed"),
        ("calls_refused", "refused"),
        ("calls_unfinished", "unfinished"),
    ],
)
def test_calls_are_counted_by_their_end(measure: str, outcome: str) -> None:
    calls = [call(outcome=one) for one in ("finished", "failed", "refused", "unfinished")]

    assert measured(marked(calls=calls), measure) == 1
    assert measured(marked(calls=[*calls, call(outcome=outcome)]), measure) == 2


@pytest.mark.parametrize(
    ("measure", "outcome"), [("answers_wrong", "wrong"), ("legs_shed", "shed"), ("legs_refused", "refused")]
)
def test_legs_are_counted_by_their_end(measure: str, outcome: str) -> None:
    assert measured(marked(legs=[leg(), leg(outcome=outcome)]), measure) == 1


def test_only_calls_of_the_named_users_that_ended_in_the_window_count() -> None:
    run = marked(
        TURN,
        calls=[
            call(4.0, seconds=0.5),
            call(4.0, seconds=2.0),  # ends after the turn
            call(7.0),
            call(7.0, user="task"),
        ],
    )

    assert measured(run, "calls_finished", window=EARLY) == 1
    assert measured(run, "calls_finished", window=LATE) == 3
    assert measured(run, "calls_finished", window=LATE, users=("task",)) == 1
    assert measured(run, "calls_finished") == 4


def test_a_window_without_its_event_has_no_calls() -> None:
    run = marked(calls=[call()])

    assert measured(run, "calls_finished", window=Window(after="never")) == 0
    assert measured(run, "calls_finished", window=Window(before="never")) == 0


def test_the_worst_call_counts() -> None:
    run = marked(calls=[call(asked={"a": 1, "b": 2}, sheds=1), call(asked={}, sheds=3)])

    assert measured(run, "asked_again") == 1
    assert measured(run, "most_sheds") == 3


def test_the_worst_of_no_calls_is_unknown() -> None:
    assert math.isnan(measured(marked(), "asked_again"))
    assert math.isnan(measured(marked(), "most_sheds"))


def test_counts_of_all_calls_are_added_up() -> None:
    run = marked(calls=[call(hops=1, retries=2, resumes=5), call(hops=3, retries=4, resumes=1)])

    assert measured(run, "hops") == 4
    assert measured(run, "connections_lost") == 6
    assert measured(run, "resumes") == 6


def test_replicas_that_answered_are_told_apart() -> None:
    run = marked(legs=[leg(replica="r1"), leg(replica="r2"), leg(replica="r2"), leg(replica="")])

    assert measured(run, "replicas_that_answered") == 2


def test_legs_count_by_who_answered_them() -> None:
    run = marked(legs=[leg(), leg(outcome="shed"), leg(outcome="refused"), leg(replica="r2")])

    assert measured(run, "legs_served") == 3
    assert measured(run, "legs_served", replica="r1") == 2


def test_only_refusals_for_lack_of_the_store_count_as_such() -> None:
    reasons = ["-31004", "store unreachable", "-31001"]
    run = marked(legs=[*(leg(outcome="refused", reason=reason) for reason in reasons), leg()])

    assert measured(run, "legs_without_store") == 2


def test_the_share_that_was_finished() -> None:
    run = marked(calls=[call(), call(), call(), call(outcome="refused")])

    assert measured(run, "share_finished") == 0.75
    assert math.isnan(measured(marked(), "share_finished"))


def test_goodput_is_compared_a_second() -> None:
    run = marked((2.0, "turn"), calls=[call(1.0), call(1.0), *[call(7.0)] * 4, call(7.0, outcome="refused")])

    assert measured(run, "goodput_ratio", window=LATE, compared=EARLY) == (4 / 8) / (2 / 2)
    assert math.isnan(measured(marked(TURN), "goodput_ratio", window=LATE, compared=EARLY))


def test_efficiency_counts_what_was_finished_between_two_looks_at_the_cpu_time() -> None:
    cpu = "process_cpu_seconds_total"
    looks = samples("r1", *({cpu: seconds} for seconds in (0.0, 1.0, 2.0, 4.0, 8.0, 8.0, 9.0)))
    run = marked((3.5, "turn"), samples=looks, calls=[call(0.5), call(2.5), *[call(5.5)] * 2, call(6.5)])

    assert measured(run, "efficiency_ratio", window=LATE, compared=EARLY) == pytest.approx((2 / 1) / (2 / 4))
    assert math.isnan(measured(marked((3.5, "turn"), calls=run.calls), "efficiency_ratio", window=LATE, compared=EARLY))


def test_what_was_asked_for_includes_each_time_that_it_was_refused() -> None:
    run = marked(TURN, calls=[call(1.0), call(7.0)], legs=[leg(7.0, "refused"), leg(7.0, "refused"), leg(7.0)])

    assert measured(run, "offered_ratio", window=LATE, compared=EARLY) == pytest.approx(3)


def test_the_tail_is_that_of_accepted_legs() -> None:
    legs = [leg(1.0, seconds=0.1), leg(7.0, seconds=0.2), leg(7.0, "shed", seconds=0.3)]
    others = [leg(7.0, "refused", seconds=2.0), leg(7.0, "failed", seconds=2.0)]

    assert measured(marked(TURN, legs=[*legs, *others]), "p99_ratio", window=LATE, compared=EARLY) == pytest.approx(3)


def test_the_tail_has_legs_that_outlast_the_window_and_none_that_began_before_it() -> None:
    run = marked(TURN, (8.0, "end"), legs=[leg(1.0, seconds=0.1), leg(4.0, seconds=5.0), leg(7.0, seconds=2.0)])
    window = Window("turn", "end")

    assert measured(run, "p99_ratio", window=window, compared=EARLY) == pytest.approx(20)


def test_rejections_and_redeliveries_are_those_of_all_processes() -> None:
    rejected = 'gateway_state_rejections_total{reason="expired"}'
    run = marked(samples=[*samples("r1", {}, {rejected: 1.0}), *samples("r2", {rejected: 5.0}, {rejected: 7.0})])

    assert measured(run, "states_rejected") == 3
    assert measured(run, "tasks_redelivered") == 0
    assert math.isnan(measured(marked(), "states_rejected"))


def test_keys_count_that_have_sealed_anything() -> None:
    first, second, third = (f'gateway_states_sealed_total{{key_id="{number}"}}' for number in range(3))
    run = marked(samples=[*samples("r1", {first: 1.0, third: 4.0}, {first: 2.0, second: 1.0, third: 4.0})])

    assert measured(run, "keys_that_sealed") == 2


def test_an_exit_code_other_than_0_is_bad() -> None:
    assert measured(marked(about={"exit_codes": {"r1": 0, "r2": 1, "w1": -9}}), "bad_exits") == 2
    assert math.isnan(measured(marked(about={"exit_codes": {}}), "bad_exits"))


def test_growth_is_that_of_the_process_that_grew_most() -> None:
    memory = "process_resident_memory_bytes"
    steady = [{memory: 100.0}] * 10
    growing = [{memory: 100.0 + 10 * t} for t in range(10)]

    run = marked(TURN, samples=[*samples("r1", *steady), *samples("r2", *growing)])

    assert measured(run, "memory_growth", window=LATE, compared=EARLY) == pytest.approx(170 / 125)
    assert math.isnan(measured(marked(TURN), "memory_growth", window=LATE, compared=EARLY))


@pytest.mark.parametrize(
    ("value", "allowed"), [(1.0, False), (2.0, True), (3.0, True), (3.1, False), (math.nan, False)]
)
def test_a_bound_allows_its_ends_and_nothing_unknown(value: float, allowed: bool) -> None:
    assert Bound("", "hops", 2, 3).allows(value) is allowed


def test_a_bound_says_what_it_allows() -> None:
    assert Bound("", "hops", 2).text() == "at least 2"
    assert Bound("", "hops", at_most=0.5).text() == "at most 0.5"
    assert Bound("", "hops", 2, 3).text() == "at least 2 and at most 3"


def test_bounds_survive_their_way_through_the_file() -> None:
    bound = Bound("Hops", "hops", 2, None, ("task",), "r1", Window("a", "b"), Window(after="c"))

    assert Bound.from_json(json.loads(json.dumps(bound.as_json()))) == bound


def test_a_verdict_gives_its_reasons() -> None:
    bounds = [
        Bound("Hops", "hops", 2),
        Bound("Failed", "calls_failed", at_most=0),
        Bound("Sheds", "most_sheds", at_most=2),
    ]

    verdict = judge(marked(calls=[call(hops=1)], about={"bounds": [bound.as_json() for bound in bounds]}))

    assert verdict.as_json() == {
        "passed": False,
        "reasons": [
            {"what": "Hops", "bound": "at least 2", "measured": "1", "passed": False},
            {"what": "Failed", "bound": "at most 0", "measured": "0", "passed": True},
            {"what": "Sheds", "bound": "at most 2", "measured": "0", "passed": True},
        ],
    }


def test_a_verdict_names_bounds_that_could_not_be_measured() -> None:
    (reason,) = judge(marked(), [Bound("Sheds", "most_sheds", at_most=2)]).reasons

    assert (reason.measured, reason.passed) == ("nothing to measure", False)


def test_a_verdict_without_bounds_shows_nothing() -> None:
    assert not judge(marked()).passed
    assert Verdict(()).passed is False
    assert judge(marked(), [Bound("Failed", "calls_failed", at_most=0)]).passed
