"""The summary that the charts of a report are drawn from."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.rawdata import RawRun
from loadtest.report.summary import MOST_BUCKETS, NOBODY, distribution, edges, natural, nines, rates, summarize, trouble
from tests.loadtest.runs import call, leg, marked


@given(st.floats(0, 1e6))
def test_a_run_of_any_length_has_few_buckets_that_cover_it(seconds: float) -> None:
    limits = edges(seconds)
    assert 2 <= len(limits) <= MOST_BUCKETS + 1
    assert limits[0] == 0
    assert limits[-1] >= seconds
    widths = [after - before for before, after in pairwise(limits)]
    assert all(width == pytest.approx(widths[0]) for width in widths[:-1])
    assert len(widths) == 1 or 0.49 * widths[0] <= widths[-1] <= 1.51 * widths[0]


@pytest.mark.parametrize(("seconds", "width"), [(8, 0.5), (60, 1), (200, 1), (3600, 15), (7200, 30)])
def test_the_longer_a_run_the_longer_its_buckets(seconds: float, width: float) -> None:
    assert edges(seconds)[1] == width


@given(st.lists(st.floats(0, 100)))
def test_no_moment_is_lost_or_counted_twice(moments: list[float]) -> None:
    limits = edges(100)
    found = rates(moments, limits)
    widths = [after - before for before, after in pairwise(limits)]
    assert sum(rate * width for rate, width in zip(found, widths, strict=True)) == pytest.approx(len(moments))


def test_a_call_counts_for_the_replica_that_gave_its_last_answer() -> None:
    legs = [leg(0, "input_required", replica="r1"), leg(1, replica="r2")]
    summary = summarize(marked(seconds=2, legs=legs, calls=[call(0, seconds=1.1)]))
    assert summary.finished == {"r2": [0, 0, 2, 0]}


def test_listening_is_no_answer_to_a_call() -> None:
    legs = [leg(0, replica="r1"), leg(0, replica="r2", method="subscriptions/listen", seconds=1.5)]
    summary = summarize(marked(seconds=2, legs=legs, calls=[call(0)]))
    assert list(summary.finished) == ["r1"]
    assert list(summary.tools) == ["get_weather"]


def test_a_call_whose_server_gives_no_name_is_still_shown() -> None:
    summary = summarize(marked(seconds=1, legs=[leg(0, replica="")], calls=[call(0)]))
    assert list(summary.finished) == [NOBODY]


def test_calls_that_did_not_finish_are_shown_by_how_they_ended() -> None:
    calls = [call(0, "failed"), call(0, "refused"), call(0, "unfinished")]
    assert set(summarize(marked(seconds=1, calls=calls)).lost) == {"failed", "refused"}


def test_replicas_are_in_the_order_in_which_people_count() -> None:
    assert sorted(["r10", "r2", "a", "r1-b", "10", "r1"], key=natural) == ["10", "a", "r1", "r1-b", "r2", "r10"]


def test_sheds_refusals_and_failures_are_told_apart_by_their_reasons() -> None:
    legs = [leg(0, "shed"), leg(0, "refused", reason="-31001"), leg(0, "refused", reason="-32602"), leg(0, "wrong")]
    summary = summarize(marked(seconds=1, legs=[*legs, leg(0), leg(0, "shed")]))
    assert summary.trouble_counts == {"shed": 2, "refused: overloaded": 1, "refused: invalid state": 1, "wrong": 1}
    assert trouble("failed", "connection") == "failed: connection"


def test_refusals_do_not_make_latencies_look_better() -> None:
    legs = [leg(0, seconds=0.3), *[leg(0, "refused", seconds=0.001) for _ in range(9)]]
    summary = summarize(marked(seconds=0.5, legs=legs))
    assert {name: values[0] for name, values in summary.latencies.items()} == {"p50": 0.3, "p90": 0.3, "p99": 0.3}
    assert summary.tools["get_weather"].count == 1


def test_latencies_over_time_are_those_of_the_users_with_the_most_legs() -> None:
    legs = [leg(0, seconds=0.3), leg(0, seconds=0.3), leg(0, seconds=9, user="streaming", tool="report")]
    summary = summarize(marked(seconds=10, legs=legs))
    assert summary.user == "ephemeral"
    assert {value for value in summary.latencies["p99"] if not math.isnan(value)} == {0.3}
    assert set(summary.tools) == {"get_weather", "report"}


def test_percentiles_are_of_the_bucket_in_which_legs_end() -> None:
    legs = [leg(0, seconds=number / 1000) for number in range(1, 101)]
    summary = summarize(marked(seconds=1, legs=[*legs, leg(0.6, seconds=0.1)]))
    assert summary.latencies == {"p50": [0.05, 0.1], "p90": [0.09, 0.1], "p99": [0.099, 0.1]}


def test_a_distribution_goes_from_half_of_the_legs_to_the_slowest() -> None:
    found = distribution([number / 1000 for number in range(1000, 0, -1)])
    assert found.count == 1000
    assert found.percentiles == [0.5, 0.9, 0.99, 1.0]
    assert (found.nines[0], found.seconds[0]) == (nines(0.5), 0.5)
    assert found.nines[-1] == pytest.approx(3, abs=0.01)
    assert found.seconds[-1] == 1.0


@given(st.lists(st.floats(1e-6, 100), min_size=1))
def test_a_distribution_never_falls(seconds: list[float]) -> None:
    found = distribution(seconds)
    assert len(found.nines) == len(found.seconds)
    assert list(found.nines) == sorted(found.nines)
    assert list(found.seconds) == sorted(found.seconds)


def test_the_time_to_the_first_segment_is_that_of_results_which_had_one() -> None:
    calls = [call(tool="report", first_segment=0.5), call(tool="report", first_segment=1.5), call(tool="report")]
    found = summarize(marked(calls=calls)).first_segments
    assert (list(found), found["report"].count, found["report"].percentiles) == (["report"], 2, [0.5, 1.5, 1.5, 1.5])


def test_a_run_is_shown_to_the_end_of_its_last_call() -> None:
    assert summarize(marked(seconds=10, calls=[call(9, seconds=4)])).seconds == 13


def test_a_run_without_anything_can_be_summed_up() -> None:
    assert all(math.isnan(value) for value in summarize(RawRun()).latencies["p50"])
