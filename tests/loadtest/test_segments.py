"""Segments in order are accepted; lost, doubled or mixed-up ones are reported."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest import draft_wire
from loadtest.segments import Segments
from loadtest.wire import Reply
from tests.loadtest.test_wire import JSON

TASK = "0123"


def block(number: int) -> dict[str, Any]:
    return {"type": "text", "text": f"section {number}"}


def segments(*numbers: int, complete: bool = False, task: str = TASK, **fields: Any) -> dict[str, Any]:
    """Return a result with these segments."""
    return {
        "partial-content": [{"seqNr": number, **block(number)} for number in numbers],
        "isComplete": complete,
        "isError": False,
        "_meta": {"io.modelcontextprotocol/related-task": {"taskId": task}},
        **fields,
    }


@given(st.lists(st.integers(0, 4)))
def test_segments_in_order_are_the_result_in_whatever_lots_they_come(lots: list[int]) -> None:
    got, last = Segments(), 0
    for size in lots:
        assert got.add(segments(*range(last + 1, last + size + 1))) is None
        last += size
    assert got.add(segments(complete=True)) is None
    assert got.blocks == [block(number) for number in range(1, last + 1)]
    assert (got.complete, got.task_id) == (True, TASK)


WRONG: dict[str, tuple[list[dict[str, Any]], str]] = {
    "a gap in a response": ([segments(1, 3)], "segment 2 is missing: got 3"),
    "a gap between two": ([segments(1), segments(3)], "segment 2 is missing: got 3"),
    "no first one": ([segments(2)], "segment 1 is missing: got 2"),
    "the same twice": ([segments(1, 1)], "segment 1 came again or too late: expected 2"),
    "one again after a break": ([segments(1, 2), segments(2, 3)], "segment 2 came again or too late: expected 3"),
    "disorder": ([segments(1), segments(3, 2)], "segment 2 is missing: got 3"),
    "more after the last": (
        [segments(1, complete=True), segments()],
        "a response with segments after the complete one",
    ),
    "those of another task": ([segments(1), segments(2, task="4567")], "segments of the task '4567', not of 0123"),
    "those of no task": ([segments(1, _meta={})], "segments of the task None, not of any"),
    "no list": ([segments() | {"partial-content": None}], "partial-content is not a list"),
    "a number that is true": ([segments() | {"partial-content": [{**block(1), "seqNr": True}]}], "without a number"),
    "no number": ([segments() | {"partial-content": [block(1)]}], "a segment without a number"),
}


@pytest.mark.parametrize(("results", "problem"), WRONG.values(), ids=WRONG)
def test_lost_doubled_and_mixed_up_segments_are_reported(results: list[dict[str, Any]], problem: str) -> None:
    got = Segments()
    *before, last = [got.add(result) for result in results]
    assert set(before) <= {None}
    assert last is not None
    assert problem in last


def test_the_whole_result_has_to_be_its_segments_in_order() -> None:
    got = Segments()
    got.add(segments(1, 2, complete=True))
    assert got.differ_from([block(1), block(2)]) is None
    for content in ([block(1)], [block(2), block(1)], [block(1), block(2), block(2)], [{**block(1), "seqNr": 1}], None):
        assert got.differ_from(content) is not None


def test_a_result_that_came_without_segments_differs_from_none() -> None:
    assert Segments().differ_from([block(1)]) is None


@given(result=st.fixed_dictionaries({}, optional=dict.fromkeys(segments(), JSON)) | JSON)
def test_any_segment_is_accepted_or_reported(result: Any) -> None:
    answer = draft_wire.read_answer(Reply(1, 200, json.dumps({"id": 1, "jsonrpc": "2.0", "result": result}).encode()))
    if answer.outcome == "completed" and "partial-content" in answer.result:
        got = Segments()
        assert (got.add(answer.result) is None) or not got.differ_from([*got.blocks])


def test_requests_of_the_draft_wire_have_no_session_and_say_all_in_their_parameters() -> None:
    call = draft_wire.call_tool("report", {"city": "Oslo"}, state="s1.x")
    assert json.loads(call.body(7)) == {
        "jsonrpc": "2.0",
        "id": 7,
        "method": "tools/call",
        "params": {
            "name": "report",
            "arguments": {"city": "Oslo"},
            "task": {"responseModes": ["streaming"]},
            "requestState": "s1.x",
        },
    }
    headers = call.headers("secret")
    assert (headers["MCP-Protocol-Version"], headers["Authorization"]) == ("DRAFT-2026-v1", "Bearer secret")
    assert not {"Mcp-Method", "Mcp-Session-Id"} & headers.keys()


def test_the_whole_result_is_asked_for_without_a_number() -> None:
    whole, rest = draft_wire.task_result(TASK), draft_wire.task_result(TASK, after=2)
    assert (whole.params, rest.params) == ({"taskId": TASK}, {"taskId": TASK, "lastSeqNr": 2})
