"""How results in segments are chosen, numbered and ended (SEP-1905)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import InvalidParams
from gateway.protocol.draft.streaming import (
    MODES,
    MORE,
    STATUS,
    AnswerMode,
    choose_mode,
    gone,
    read_last_seq_nr,
    response,
    segments_of,
)
from gateway.protocol.handshake.tasks import GONE, related
from gateway.tasks.model import Phase, TaskView
from tests.protocol.task_views import (
    CANCELLED,
    COMPLETED,
    ENDED,
    ERRED,
    FAILED,
    QUEUED,
    RUNNING,
    WAITING,
    block,
    json_values,
    result,
)

TASK_ONLY = AnswerMode("task", may_stream=False, fallback=False)
FALLBACK = AnswerMode("task", may_stream=False, fallback=True)
A, B, C = block("a"), block("b"), block("c")


@pytest.mark.parametrize(
    ("asked", "client_modes", "choice"),
    [
        (None, None, TASK_ONLY),
        (None, frozenset(MODES), TASK_ONLY),
        ([], None, TASK_ONLY),
        (["task"], None, TASK_ONLY),
        (["task"], frozenset(), TASK_ONLY),
        (["task", "streaming"], None, AnswerMode("streaming", may_stream=True, fallback=False)),
        (["task", "streaming", "immediate"], None, AnswerMode("immediate", may_stream=True, fallback=False)),
        (["task", "immediate"], None, AnswerMode("immediate", may_stream=False, fallback=False)),
        (["immediate", "later"], None, AnswerMode("immediate", may_stream=False, fallback=True)),
        (["later"], None, FALLBACK),
        (["later", ""], frozenset({"later"}), FALLBACK),
        (["later", "task"], None, TASK_ONLY),
        (["streaming"], frozenset({"immediate"}), FALLBACK),
        (
            ["streaming", "immediate"],
            frozenset({"immediate"}),
            AnswerMode("immediate", may_stream=False, fallback=True),
        ),
        (["streaming", "immediate"], frozenset({"streaming"}), AnswerMode("streaming", may_stream=True, fallback=True)),
        (["streaming", "task"], frozenset(), TASK_ONLY),
    ],
)
def test_the_first_mode_that_both_sides_have_is_chosen(
    asked: Any, client_modes: frozenset[str] | None, choice: AnswerMode
) -> None:
    assert choose_mode(asked, client_modes) == choice


@pytest.mark.parametrize("asked", [True, 1, "task", {}, {"task": True}, [1], ["task", None], [["task"]]])
def test_modes_are_an_array_of_strings(asked: Any) -> None:
    with pytest.raises(InvalidParams, match=r"params\.task\.responseModes must be an array of strings"):
        choose_mode(asked, None)


@given(
    json_values | st.lists(st.sampled_from(MODES) | st.text(max_size=3)),
    st.none() | st.frozensets(st.sampled_from(MODES)),
)
def test_whatever_is_asked_nothing_is_used_that_was_not_asked(asked: Any, client_modes: frozenset[str] | None) -> None:
    try:
        choice = choose_mode(asked, client_modes)
    except InvalidParams:
        assert asked is not None
        return
    names = asked or []
    assert choice.mode == "task" or choice.mode in names
    assert not choice.may_stream or "streaming" in names
    assert client_modes is None or choice.mode in {*client_modes, "task"}
    assert choice.fallback == (bool(names) and "task" not in names)


def test_a_place_to_resume_from_is_a_positive_integer() -> None:
    assert read_last_seq_nr({}) is None
    assert read_last_seq_nr({"lastSeqNr": None}) is None
    assert [read_last_seq_nr({"lastSeqNr": number}) for number in (1, 2, 10**300)] == [1, 2, 2**53 - 1]


@given(json_values.filter(lambda value: value is not None))
def test_anything_else_is_refused(sent: Any) -> None:
    if type(sent) is int and sent > 0:
        assert read_last_seq_nr({"lastSeqNr": sent}) == min(sent, 2**53 - 1)
    else:
        with pytest.raises(InvalidParams, match=r"params\.lastSeqNr must be a positive integer"):
            read_last_seq_nr({"lastSeqNr": sent})


@pytest.mark.parametrize("sent", [True, False, 0, -1, 1.0, 1.5, "1", [], {}])
def test_anything_but_a_positive_integer_is_refused(sent: Any) -> None:
    with pytest.raises(InvalidParams):
        read_last_seq_nr({"lastSeqNr": sent})


def told(view: TaskView, stored: list[dict[str, Any]], after: int = 0) -> tuple[list[tuple[int, str]], bool, bool]:
    answer = response(segments_of(view, stored), after, view.task_id)
    assert answer["_meta"] == related("t_1")["_meta"]
    segments = [(segment["seqNr"], segment["text"]) for segment in answer["partial-content"]]
    return segments, answer["isComplete"], answer["isError"]


@pytest.mark.parametrize("view", [QUEUED, RUNNING, WAITING])
def test_while_a_task_runs_there_is_what_it_has_emitted(view: TaskView) -> None:
    assert told(view, []) == ([], False, False)
    assert told(view, [A, B]) == ([(1, "a"), (2, "b")], False, False)


def test_once_it_is_done_there_is_its_whole_content() -> None:
    for stored in ([], [A], [A, B]):
        assert told(COMPLETED, stored) == ([(1, "a"), (2, "b")], True, False)
    assert told(replace(COMPLETED, result=result()), []) == ([], True, False)


def test_what_went_wrong_is_the_last_segment() -> None:
    assert told(ERRED, [A]) == ([(1, "a"), (2, "Out of luck")], True, True)
    assert told(FAILED, [A, B]) == ([(1, "a"), (2, "b"), (3, "Out of tea")], True, True)
    for unreadable in (replace(ENDED, phase=Phase.DONE, opened=False), replace(RUNNING, opened=False)):
        assert told(unreadable, [A]) == ([(1, "a"), (2, "The task cannot be read")], True, True)


def test_an_error_equal_to_the_last_segment_is_reported_all_the_same() -> None:
    assert told(FAILED, [block("Out of tea")]) == ([(1, "Out of tea"), (2, "Out of tea")], True, True)


def test_the_last_response_says_where_the_other_fields_of_the_result_are() -> None:
    more = replace(COMPLETED, result={**result("a", "b"), "structuredContent": {}, "_meta": {}})
    meta = response(segments_of(more, [A]), 0, "t_1")["_meta"]
    assert meta.pop(MORE) == {"method": "tasks/result", "fields": ["_meta", "structuredContent"]}
    assert meta == related("t_1")["_meta"]


def test_a_task_that_is_gone_ends_its_stream_in_words() -> None:
    assert gone("t_1") == {"content": [block(GONE)], "isError": True, "isComplete": True, **related("t_1")}


def test_a_result_without_what_was_emitted_comes_after_it() -> None:
    too_large = replace(ERRED, result=result("Too large", is_error=True))
    assert told(too_large, [A, B]) == ([(1, "a"), (2, "b"), (3, "Too large")], True, True)


def test_a_cancelled_task_keeps_what_it_has_emitted() -> None:
    for stored, numbered in (([A], [{**A, "seqNr": 1}]), ([], [])):
        last = response(segments_of(CANCELLED, stored), 0, "t_1")
        assert (last["partial-content"], last["isError"], last["isComplete"]) == (numbered, False, True)
        assert last["_meta"] == {**related("t_1")["_meta"], STATUS: "cancelled"}


@pytest.mark.parametrize(
    ("view", "error"), [(FAILED, "Out of tea"), (replace(ERRED, result=result("No", is_error=True)), "No")]
)
def test_a_failure_before_the_first_segment_is_told_as_a_result(view: TaskView, error: str) -> None:
    segments = segments_of(view, [])
    assert response(segments, 0, "t_1") == {
        "content": [block(error)],
        "isError": True,
        "isComplete": True,
        **related("t_1"),
    }
    assert told(view, [], after=1) == ([], True, True)


def test_segments_that_the_client_has_are_not_sent_again() -> None:
    assert told(COMPLETED, [A], after=1) == ([(2, "b")], True, False)
    assert told(COMPLETED, [A], after=2) == ([], True, False)
    assert told(COMPLETED, [A], after=7) == ([], True, False)
    assert told(RUNNING, [A], after=1) == ([], False, False)
    assert told(RUNNING, [A], after=7) == ([], False, False)


def test_a_running_task_needs_no_more_than_its_new_segments() -> None:
    segments = segments_of(RUNNING, [B, C], after=1)
    assert [
        [segment["seqNr"] for segment in response(segments, after, "t_1")["partial-content"]] for after in (1, 2, 3, 9)
    ] == [[2, 3], [3], [], []]
    for view in (COMPLETED, FAILED, CANCELLED):
        with pytest.raises(ValueError, match="needs all of its segments"):
            segments_of(view, [B], after=1)


def test_a_number_is_ours_whatever_a_block_brings() -> None:
    (segment,) = response(segments_of(RUNNING, [{**A, "seqNr": 9}]), 0, "t_1")["partial-content"]
    assert segment == {**A, "seqNr": 1}


@given(st.lists(st.text(max_size=3), max_size=8), st.data())
def test_wherever_a_client_is_cut_off_it_gets_each_segment_once_and_merges_the_content(
    texts: list[str], data: st.DataObject
) -> None:
    content = [block(text) for text in texts]
    emitted = data.draw(st.integers(0, len(texts)))
    done = replace(COMPLETED, result={"content": content, "isError": False})
    received: list[dict[str, Any]] = []
    for stored in sorted(data.draw(st.lists(st.integers(0, emitted), max_size=4))):
        since = data.draw(st.integers(0, min(len(received), stored)))
        segments = segments_of(RUNNING, content[since:stored], since)
        received += response(segments, len(received), "t_1")["partial-content"]
    last = response(segments_of(done, content[:emitted]), len(received), "t_1")
    received += last["partial-content"]
    assert last["isComplete"]
    assert [segment.pop("seqNr") for segment in received] == list(range(1, len(texts) + 1))
    assert received == content
