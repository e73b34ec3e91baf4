"""One stored task in the words of the released wire."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gateway.errors import InvalidParams
from gateway.protocol.released.tasks import (
    META_PROGRESS,
    detailed_task,
    read_task_id,
    read_task_update,
    task,
    task_meta,
)
from gateway.tasks.model import Phase, Progress
from tests.protocol.task_views import ERROR, QUESTION, QUEUED

VIEW = replace(QUEUED, form="released")


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"phase": Phase.QUEUED}, "working"),
        ({"phase": Phase.RUNNING}, "working"),
        ({"phase": Phase.WAITING}, "input_required"),
        ({"phase": Phase.DONE, "result": {"content": [], "isError": False}}, "completed"),
        ({"phase": Phase.DONE, "result": {"content": [], "isError": True}}, "completed"),
        ({"phase": Phase.DONE, "error": ERROR}, "failed"),
        ({"phase": Phase.CANCELLED}, "cancelled"),
        *(({"phase": phase, "opened": False}, "failed") for phase in Phase if phase is not Phase.CANCELLED),
        ({"phase": Phase.CANCELLED, "opened": False}, "cancelled"),
    ],
)
def test_each_phase_has_its_status_and_what_goes_with_it(changes: dict[str, Any], status: str) -> None:
    view = replace(VIEW, questions={"who": QUESTION}, **changes)
    told = detailed_task(view)
    assert told["status"] == task(view)["status"] == status
    extras = {"input_required": {"inputRequests"}, "completed": {"result"}, "failed": {"error"}}
    assert set(told) - set(task(view)) == extras.get(status, set())


def test_a_task_has_times_and_hints() -> None:
    assert task(VIEW) == {
        "taskId": "t_1",
        "status": "working",
        "createdAt": "2023-11-14T22:13:20.123Z",
        "lastUpdatedAt": "2023-11-14T22:13:21.000Z",
        "ttlMs": 60_000,
        "pollIntervalMs": 1_000,
    }


def test_the_hint_when_to_ask_again_grows_with_age() -> None:
    ages = (0, 20_000, 10**9)
    hints = [task(replace(VIEW, now_ms=VIEW.created_ms + age))["pollIntervalMs"] for age in ages]
    assert hints == sorted(set(hints))


def test_a_waiting_task_asks_by_the_keys_of_the_wire() -> None:
    told = detailed_task(replace(VIEW, phase=Phase.WAITING, questions={"who~2": QUESTION}))
    assert told["inputRequests"] == {"who~2": {"method": QUESTION.method, "params": QUESTION.params}}


def test_a_result_is_what_the_call_would_have_returned() -> None:
    result = {"content": [], "structuredContent": {"a": 1}, "isError": True}
    told = detailed_task(replace(VIEW, phase=Phase.DONE, result=result))
    assert told["result"] == {"resultType": "complete", **result}


def test_a_failed_task_says_why() -> None:
    told = detailed_task(replace(VIEW, phase=Phase.DONE, error=ERROR))
    assert (told["error"], told["statusMessage"]) == (ERROR, "Out of tea")
    for stored, code in {-32002: -32602, -32042: -32603, -32050: -32603, -31005: -31005}.items():
        error = {**ERROR, "code": stored}
        assert detailed_task(replace(VIEW, phase=Phase.DONE, error=error))["error"] == {**ERROR, "code": code}
    unreadable = detailed_task(replace(VIEW, opened=False))
    assert unreadable["error"] == {"code": -32603, "message": "The task cannot be read"}


@pytest.mark.parametrize(
    ("progress", "message", "numbers"),
    [
        (Progress(2, 5, "Writing"), "Writing (2 of 5)", {"progress": 2, "total": 5}),
        (Progress(2.5, 5.0), "2.5 of 5", {"progress": 2.5, "total": 5.0}),
        (Progress(12_345_678), "12345678", {"progress": 12_345_678}),
        (Progress(0, None, "Begun"), "Begun (0)", {"progress": 0}),
    ],
)
def test_progress_is_told_in_words_and_in_numbers(progress: Progress, message: str, numbers: Any) -> None:
    view = replace(VIEW, phase=Phase.RUNNING, progress=progress)
    assert task(view)["statusMessage"] == message
    assert task_meta(view) == {META_PROGRESS: numbers}
    assert task_meta(VIEW) == {}


def test_a_task_that_ended_has_no_progress_in_words() -> None:
    for phase in (Phase.DONE, Phase.CANCELLED):
        assert "statusMessage" not in task(replace(VIEW, phase=phase, progress=Progress(1, 2), result={}))


@pytest.mark.parametrize("params", [{}, {"taskId": None}, {"taskId": 7}, {"taskId": ["t"]}])
def test_an_id_is_a_string(params: dict[str, Any]) -> None:
    with pytest.raises(InvalidParams, match=r"params\.taskId must be a string"):
        read_task_id(params)


def test_an_id_longer_than_any_is_not_looked_up() -> None:
    assert read_task_id({"taskId": "x" * 128}) == "x" * 128
    with pytest.raises(InvalidParams, match="Task not found"):
        read_task_id({"taskId": "x" * 129})


def test_an_update_has_answers_though_it_may_have_none_of_them() -> None:
    assert read_task_update({"taskId": "t", "inputResponses": {}}).input_responses == {}
    for params in ({"taskId": "t"}, {"taskId": "t", "inputResponses": None}, {"taskId": "t", "inputResponses": [1]}):
        with pytest.raises(InvalidParams, match=r"params\.inputResponses must be an object"):
            read_task_update(params)
