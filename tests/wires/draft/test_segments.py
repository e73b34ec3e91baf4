"""By any mechanism, the client assembles the result that the server sent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wires.draft.segments import SegmentError, SegmentTracker

BLOCKS = st.lists(
    st.dictionaries(st.sampled_from(["type", "text", "data", "url"]), st.text(max_size=5), max_size=3), max_size=12
)


def response(*segments: dict[str, Any], complete: bool = False, is_error: bool = False) -> dict[str, Any]:
    return {"partial-content": list(segments), "isComplete": complete, "isError": is_error}


def numbered(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"seqNr": number, **block} for number, block in enumerate(blocks, 1)]


def tracker_of(*numbers: int) -> SegmentTracker:
    tracker = SegmentTracker("t")
    tracker.add(response(*({"seqNr": number, "type": "text", "text": str(number)} for number in numbers)))
    return tracker


@given(blocks=BLOCKS, data=st.data())
def test_in_whatever_order_split_and_repeated_the_merged_content_is_the_original(
    blocks: list[dict[str, Any]], data: st.DataObject
) -> None:
    originals = numbered(blocks)
    repeats = data.draw(st.lists(st.sampled_from(originals), max_size=8)) if originals else []
    sent = data.draw(st.permutations(originals + repeats))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=4)))
    tracker = SegmentTracker("t")
    for begin, end in zip([0, *cuts], [*cuts, len(sent)], strict=True):
        tracker.add(response(*sent[begin:end], complete=end == len(sent)))
    assert tracker.merged() == blocks
    assert tracker.whole
    assert tracker.received_seq_nrs == set(range(1, len(blocks) + 1))
    assert tracker.highest_seq_nr == tracker.last_seq_nr == len(blocks)
    assert len(tracker.duplicates) == len(repeats)
    assert not tracker.conflicts


@given(blocks=BLOCKS.filter(bool), data=st.data())
def test_asking_from_the_last_number_before_the_gap_fills_every_gap(
    blocks: list[dict[str, Any]], data: st.DataObject
) -> None:
    originals = numbered(blocks)
    arrived = data.draw(st.lists(st.sampled_from(originals), unique_by=lambda segment: segment["seqNr"]))
    tracker = SegmentTracker("t")
    tracker.add(response(*arrived))
    tracker.add(response(*originals[tracker.last_seq_nr :], complete=True))
    assert tracker.whole
    assert tracker.merged() == blocks


@pytest.mark.parametrize(
    ("numbers", "missing", "last", "highest"),
    [
        ((), [], 0, 0),
        ((1, 2, 3), [], 3, 3),
        ((1, 3, 5), [2, 4], 1, 5),
        ((2, 3), [1], 0, 3),
        ((4, 1), [2, 3], 1, 4),
    ],
)
def test_a_gap_is_what_has_not_arrived_below_the_highest_number(
    numbers: tuple[int, ...], missing: list[int], last: int, highest: int
) -> None:
    tracker = tracker_of(*numbers)
    assert (tracker.missing, tracker.last_seq_nr, tracker.highest_seq_nr) == (missing, last, highest)


def test_complete_with_a_gap_is_not_whole() -> None:
    tracker = tracker_of(1, 3)
    tracker.add(response(complete=True))
    assert tracker.is_complete
    assert not tracker.whole


def test_of_two_segments_with_one_number_the_first_counts_and_the_difference_is_reported() -> None:
    tracker = tracker_of(1)
    assert tracker.add(response({"seqNr": 1, "type": "text", "text": "other"}, {"seqNr": 2, "type": "text"})) == [2]
    assert tracker.merged() == [{"type": "text", "text": "1"}, {"type": "text"}]
    assert (tracker.duplicates, tracker.conflicts) == ([1], [1])


def test_what_is_error_and_complete_once_remains_so() -> None:
    tracker = SegmentTracker("t")
    tracker.add(response(complete=True, is_error=True))
    tracker.add(response())
    assert tracker.is_complete
    assert tracker.is_error


@pytest.mark.parametrize("number", [0, -1, 1.0, True, "1", None])
def test_a_number_that_is_not_a_positive_integer_is_refused(number: Any) -> None:
    with pytest.raises(SegmentError, match="positive integer"):
        SegmentTracker("t").add(response({"seqNr": number, "type": "text"}))


@pytest.mark.parametrize(
    "result",
    [
        {"isComplete": False},
        {"partial-content": {}, "isComplete": False},
        {"partial-content": []},
        {"partial-content": [], "isComplete": "no"},
    ],
)
def test_a_response_without_segments_or_without_saying_whether_it_is_the_last_is_refused(result: Any) -> None:
    with pytest.raises(SegmentError, match="not a streaming response"):
        SegmentTracker("t").add(result)
