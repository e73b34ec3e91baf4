"""One stored task in the words of SEP-1686."""

from __future__ import annotations

import json
import string
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import InvalidParams, RpcError
from gateway.protocol.draft.first_form import (
    RELATED_TASK,
    TASK,
    FirstForm,
    already_exists,
    answer,
    call_result,
    created_notification,
    final_result,
    not_completed,
    read_first_form,
    related,
    status,
    status_notification,
    task,
)
from gateway.tasks.model import Phase, Progress, TaskView
from tests.protocol.task_views import (
    CANCELLED,
    COMPLETED,
    ENDED,
    ERRED,
    FAILED,
    HANDED_BACK,
    QUESTION,
    QUEUED,
    RUNNING,
    WAITING,
    json_values,
    result,
    views,
)
from tests.tasks.transitions import TRANSITIONS

UNREADABLE = replace(ENDED, phase=Phase.DONE, opened=False)
STATUSES = {
    "submitted": {"working", "input_required", "completed", "failed", "cancelled", "unknown"},
    "working": {"input_required", "completed", "failed", "cancelled", "unknown"},
    "input_required": {"working", "completed", "failed", "cancelled", "unknown"},
}


@pytest.mark.parametrize(
    ("view", "told"),
    [
        (QUEUED, "submitted"),
        (RUNNING, "working"),
        (HANDED_BACK, "working"),
        (WAITING, "input_required"),
        (COMPLETED, "completed"),
        (ERRED, "completed"),
        (FAILED, "failed"),
        (CANCELLED, "cancelled"),
        *((replace(view, opened=False, questions={}), "unknown") for view in (QUEUED, RUNNING, WAITING)),
        (UNREADABLE, "unknown"),
        (replace(CANCELLED, opened=False), "cancelled"),
    ],
)
def test_each_state_has_its_status(view: TaskView, told: str) -> None:
    assert status(view) == task(view)["status"] == told


def test_no_move_of_a_task_leads_to_a_status_that_may_not_follow() -> None:
    """Section 4.3. Claims are counted, so a worker that hands a task back does not make it `submitted` again."""
    for starts in TRANSITIONS.values():
        for before, after in starts.items():
            for claims in (0, 1) if before is Phase.QUEUED else (1,):
                old = status(replace(QUEUED, phase=before, generation=claims))
                new = status(replace(QUEUED, phase=after, generation=claims if after is Phase.CANCELLED else 1))
                assert new == old or new in STATUSES[old]


def test_a_task_reports_how_long_its_result_will_be_kept_and_how_often_to_ask() -> None:
    view = replace(RUNNING, kept_ms=30_000, progress=Progress(2, 5, "Writing"))
    told = {
        "taskId": "t_1",
        "status": "working",
        "keepAlive": 30_000,
        "pollFrequency": 1_000,
        "statusMessage": "Writing",
        "progress": 2,
        "progressTotal": 5,
    }
    assert task(view) == told
    assert answer(view) == {**told, "_meta": {RELATED_TASK: {"taskId": "t_1"}}}


@given(views)
def test_only_a_failed_task_has_an_error(view: TaskView) -> None:
    told = task(view)
    assert ("error" in told) == (told["status"] == "failed")
    assert not told.keys() & {"ttl", "createdAt", "pollInterval"}


@pytest.mark.parametrize(
    ("view", "said"),
    [
        (QUEUED, {}),
        (replace(HANDED_BACK, progress=Progress(1, message="Resting")), {"statusMessage": "Resting"}),
        (WAITING, {"statusMessage": "Input is required; tasks/result returns the questions."}),
        (COMPLETED, {"statusMessage": "The task is completed; tasks/result returns its result."}),
        (ERRED, {"statusMessage": "The task is completed; tasks/result returns its result."}),
        (FAILED, {"error": "Out of tea"}),
        (CANCELLED, {"statusMessage": "The task was cancelled by request."}),
    ],
)
def test_a_message_for_people_adds_to_the_status(view: TaskView, said: dict[str, str]) -> None:
    told = task(view)
    assert {name: told[name] for name in ("error", "statusMessage") if name in told} == said


def test_notifications_name_their_task() -> None:
    meta = {RELATED_TASK: {"taskId": "t_1"}}
    assert related("t_1") == {"_meta": meta}
    assert json.loads(created_notification("t_1")) == {
        "jsonrpc": "2.0",
        "method": "notifications/tasks/created",
        "params": {"_meta": meta},
    }
    assert json.loads(status_notification(RUNNING)) == {
        "jsonrpc": "2.0",
        "method": "notifications/tasks/status",
        "params": {**task(RUNNING), "_meta": meta},
    }


def test_a_completed_task_has_the_result_of_the_call() -> None:
    for view in (COMPLETED, ERRED):
        assert view.result is not None
        assert final_result(view) == call_result(view) == {**view.result, **related("t_1")}


@pytest.mark.parametrize("view", [QUEUED, RUNNING, WAITING, FAILED, CANCELLED, UNREADABLE])
def test_any_other_task_has_none(view: TaskView) -> None:
    with pytest.raises(InvalidParams) as caught:
        final_result(view)
    assert caught.value.message == f"Cannot retrieve result: Task status is '{status(view)}', not 'completed'"
    asked = {"inputRequests": {"who~2": {"method": QUESTION.method, "params": QUESTION.params}}}
    assert caught.value.data == not_completed(view).data == (asked if view is WAITING else None)


def test_the_request_itself_ends_as_it_would_have_without_a_task() -> None:
    with pytest.raises(RpcError, match="Out of tea"):
        call_result(FAILED)
    with pytest.raises(RpcError, match="The task cannot be read"):
        call_result(UNREADABLE)
    cancelled = result("The task was cancelled by request.", is_error=True)
    assert call_result(CANCELLED) == {**cancelled, **related("t_1")}


def test_errors_have_the_texts_of_the_proposal() -> None:
    assert already_exists("786512e2").message == "Task ID already exists: 786512e2"
    assert already_exists("x").code == -32602


@pytest.mark.parametrize(
    ("meta", "wish"),
    [
        ({}, None),
        ({TASK: None}, None),
        ({"io.modelcontextprotocol/task": {"taskId": "x"}}, None),
        ({TASK: {"taskId": "786512e2-9e0d", "keepAlive": 60000}}, FirstForm("786512e2-9e0d", 60_000)),
        ({TASK: {"taskId": "!~", "keepAlive": None}}, FirstForm("!~", None)),
        ({TASK: {"taskId": "x" * 128, "keepAlive": 0, "other": []}}, FirstForm("x" * 128, 0)),
        ({TASK: {"taskId": "x", "keepAlive": 1.5}}, FirstForm("x", 1)),
    ],
)
def test_what_makes_a_request_a_task_is_read(meta: dict[str, Any], wish: FirstForm | None) -> None:
    assert read_first_form(meta) == wish


@pytest.mark.parametrize("task_id", ["", "a b", " a", "a\n", "a\x7f", "é", "x" * 129, "٣"])
def test_an_id_is_1_to_128_visible_ascii_characters(task_id: str) -> None:
    with pytest.raises(InvalidParams, match=r"\.taskId must be 1 to 128 visible ASCII characters"):
        read_first_form({TASK: {"taskId": task_id}})


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ([], " must be an object"),
        (False, " must be an object"),
        ({}, ".taskId must be a string"),
        ({"taskId": 7}, ".taskId must be a string"),
        ({"taskId": "x", "keepAlive": -1}, ".keepAlive must be a number of milliseconds, not less than 0"),
        ({"taskId": "x", "keepAlive": True}, ".keepAlive must be a number of milliseconds, not less than 0"),
        ({"taskId": "x", "keepAlive": "1"}, ".keepAlive must be a number of milliseconds, not less than 0"),
    ],
)
def test_malformed_metadata_is_refused_by_name(wish: Any, message: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        read_first_form({TASK: wish})
    assert caught.value.message == f'params._meta["{TASK}"]{message}'


@given(
    json_values
    | st.fixed_dictionaries({"taskId": json_values | st.text("ab~", max_size=3)}, optional={"keepAlive": json_values})
)
def test_anything_in_place_of_the_metadata_is_read_or_refused(sent: Any) -> None:
    try:
        wish = read_first_form({TASK: sent})
    except InvalidParams:
        return
    assert (wish is None) == (sent is None)
    if wish is not None:
        visible = set(string.ascii_letters + string.digits + string.punctuation)
        assert 1 <= len(wish.task_id) <= 128
        assert set(wish.task_id) <= visible
        assert wish.keep_alive_ms is None or wish.keep_alive_ms >= 0
