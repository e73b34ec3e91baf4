"""The layout of the charts of a report."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.report.layout import (
    Badge,
    Span,
    badges,
    clock,
    duration,
    lanes,
    latency_ticks,
    spread,
    squeeze,
    time_ticks,
)

places = st.lists(st.floats(0, 10), max_size=30).map(sorted)
widths = st.floats(0.1, 4)


@given(places, st.data())
def test_no_label_of_an_event_overlaps_another_or_is_crossed_by_its_mark(
    lefts: list[float], data: st.DataObject
) -> None:
    labels = [Span(left, left + data.draw(widths)) for left in lefts]
    for (one, low), (other, high) in combinations(zip(labels, lanes(labels), strict=True), 2):
        assert low != high or not one.overlaps(other)
        crossed = one.left < other.left < one.right
        assert not crossed or high < low


def test_five_events_at_once_stand_above_each_other_in_their_order() -> None:
    assert lanes([Span(3 + number / 100, 5) for number in range(5)]) == [4, 3, 2, 1, 0]


def test_events_far_apart_all_stand_low() -> None:
    assert lanes([Span(0, 1), Span(1, 2), Span(5, 6)]) == [0, 0, 0]


@given(places)
def test_badges_name_every_event_once_and_in_order(found: list[float]) -> None:
    numbers = [number for badge in badges(found, 0.3, 0.6) for number in range(badge.first, badge.last + 1)]
    assert numbers == list(range(1, len(found) + 1))


def test_events_with_room_for_it_have_badges_of_their_own() -> None:
    assert [badge.text for badge in badges([1, 1.4, 3], 0.3, 0.6)] == ["1", "2", "3"]


def test_events_too_close_for_that_share_one_and_no_others_do() -> None:
    assert badges([1, 1.125, 1.25, 3], 0.3, 0.6) == [Badge(1.125, 1, 3), Badge(3, 4, 4)]
    assert [badge.text for badge in badges([1, 1.1, 3, 3.4], 0.3, 0.6)] == ["1\N{EN DASH}2", "3", "4"]


@given(places)
def test_badges_do_not_overlap(found: list[float]) -> None:
    rooms = [(badge.x, 0.3 if badge.first == badge.last else 0.6) for badge in badges(found, 0.3, 0.6)]
    assert all((one + other) / 2 <= right - left + 1e-9 for (left, one), (right, other) in pairwise(rooms))


@given(places, st.floats(0.01, 3))
def test_names_are_spread_without_overlap_and_stay_inside(wanted: list[float], gap: float) -> None:
    found = spread(wanted, gap, 0, 10)
    room = min(gap, 10 / max(1, len(wanted) - 1))
    assert all(after - before >= room - 1e-9 for before, after in pairwise(found))
    assert all(-1e-9 <= place <= 10 + 1e-9 for place in found)


def test_names_with_room_stay_where_they_are_wanted() -> None:
    assert spread([1, 2, 4], 0.5, 0, 10) == [1, 2, 4]


def test_names_that_want_one_place_share_it_evenly() -> None:
    assert spread([5, 5, 5], 1, 0, 10) == pytest.approx([4, 5, 6])


@given(st.floats(0.25, 1e6), st.integers(2, 12))
def test_a_time_axis_begins_at_zero_and_has_few_marks_within_the_run(seconds: float, most: int) -> None:
    ticks = time_ticks(seconds, most)
    assert ticks[0] == 0
    assert ticks[-1] <= seconds
    assert len(ticks) <= most + 1


@given(st.floats(1e-4, 10), st.floats(1.01, 1e5), st.integers(2, 9))
def test_a_latency_axis_has_few_marks_within_its_ends(low: float, ratio: float, most: int) -> None:
    ticks = latency_ticks(low, low * ratio, most)
    assert len(ticks) <= most
    assert all(low <= tick <= low * ratio for tick in ticks)


@pytest.mark.parametrize(
    ("seconds", "whole", "text"),
    [(12, 60, "12 s"), (0.5, 4, "0.5 s"), (185, 600, "3:05"), (5400, 7200, "1:30 h"), (0, 7200, "0:00 h")],
)
def test_times_are_written_as_the_length_of_the_run_asks(seconds: float, whole: float, text: str) -> None:
    assert clock(seconds, whole) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.00085, "850 µs"),
        (0.0042, "4.2 ms"),
        (0.031, "31 ms"),
        (1.5, "1.5 s"),
        (1, "1 s"),
        (0.9999, "1 s"),
        (0, "0 µs"),
    ],
)
def test_latencies_have_a_fitting_unit_and_two_digits(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@given(st.text(), st.integers(1, 30))
def test_a_text_becomes_one_short_printable_line(text: str, most: int) -> None:
    line = squeeze(text, most)
    assert len(line) <= most
    assert line.isprintable()


def test_of_a_long_name_both_ends_are_kept() -> None:
    assert squeeze("gateway-7f9c5d\n-xk2lp", 12) == "gatewa…xk2lp"
