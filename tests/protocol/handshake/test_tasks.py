"""One stored task in the words of 2025-11-25, checked against the published types."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import Any

import mcp_types._v2025_11_25 as published
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import InvalidParams, RpcError
from gateway.protocol.handshake.tasks import (
    RELATED_TASK,
    TaskWish,
    asking,
    call_result,
    created,
    final_result,
    has_ended,
    not_found,
    read_related_task,
    read_task_id,
    read_task_params,
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
    ERROR,
    FAILED,
    HANDED_BACK,
    QUESTION,
    QUEUED,
    RUNNING,
    WAITING,
    block,
    json_values,
    result,
    views,
)

OWN = "example.com/task"
BUSY = "The task is in progress."
DONE = "The task is completed; tasks/result returns its result."


@pytest.mark.parametrize(
    ("view", "told"),
    [
        (QUEUED, "working"),
        (RUNNING, "working"),
        (HANDED_BACK, "working"),
        (WAITING, "input_required"),
        (COMPLETED, "completed"),
        (ERRED, "failed"),
        (FAILED, "failed"),
        (CANCELLED, "cancelled"),
        *((replace(view, opened=False, questions={}), "failed") for view in (QUEUED, RUNNING, WAITING)),
        (replace(ENDED, phase=Phase.DONE, opened=False), "failed"),
        (replace(CANCELLED, opened=False), "cancelled"),
    ],
)
def test_each_state_has_its_status(view: TaskView, told: str) -> None:
    assert status(view) == told
    assert has_ended(view) == (told in {"completed", "failed", "cancelled"})


@given(views, st.booleans())
def test_every_task_is_one_of_the_published_type(view: TaskView, with_progress: bool) -> None:
    told = created(view, with_progress)
    assert told == {"task": task(view, with_progress)}
    read = published.CreateTaskResult.model_validate(told).task
    assert read.model_dump(by_alias=True, exclude_unset=True) == {
        name: value for name, value in told["task"].items() if name not in {"progress", "progressTotal"}
    }
    notified = json.loads(status_notification(view, with_progress))
    assert published.TaskStatusNotification.model_validate(notified).params.task_id == view.task_id
    assert notified["params"] == told["task"]


def test_a_task_has_times_and_hints_but_no_progress_where_there_are_no_fields_for_it() -> None:
    view = replace(RUNNING, progress=Progress(2, 5, "Writing"))
    plain = {
        "taskId": "t_1",
        "status": "working",
        "statusMessage": "Writing",
        "createdAt": "2023-11-14T22:13:20.123Z",
        "lastUpdatedAt": "2023-11-14T22:13:21.000Z",
        "ttl": 60_000,
        "pollInterval": 1_000,
    }
    assert task(view, with_progress=False) == plain
    assert task(view, with_progress=True) == {**plain, "progress": 2, "progressTotal": 5}


@given(views)
def test_a_total_is_told_only_if_it_is_not_less_than_the_progress(view: TaskView) -> None:
    told = task(view, with_progress=True)
    assert ("progress" in told) == (view.progress is not None)
    if "progressTotal" in told:
        assert told["progressTotal"] >= told["progress"]
    elif view.progress is not None and view.progress.total is not None:
        assert view.progress.total < view.progress.done


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (QUEUED, BUSY),
        (RUNNING, BUSY),
        (replace(RUNNING, progress=Progress(1)), BUSY),
        (replace(HANDED_BACK, progress=Progress(1, 2, "Resting")), "Resting"),
        (replace(WAITING, progress=Progress(1, 2, "Asking")), "Input is required; tasks/result returns the questions."),
        (replace(COMPLETED, progress=Progress(2, 2, "Done")), DONE),
        (CANCELLED, "The task was cancelled by request."),
        (FAILED, "Out of tea"),
        (ERRED, "Out of luck"),
        (replace(ERRED, result={"content": [], "isError": True}), "The tool reported an error"),
        (replace(ERRED, result={"isError": True}), "The tool reported an error"),
        (replace(ERRED, result={"content": [block("Why"), {"type": "image"}], "isError": True}), "Why"),
        (replace(RUNNING, opened=False), "The task cannot be read"),
    ],
)
def test_the_status_comes_with_a_message_for_people(view: TaskView, message: str) -> None:
    assert task(view, with_progress=False).get("statusMessage") == message


def test_a_long_failure_is_cut() -> None:
    for view in (
        replace(FAILED, error={**ERROR, "message": "x" * 301}),
        replace(ERRED, result=result("x" * 10**6, is_error=True)),
    ):
        assert task(view, with_progress=False)["statusMessage"] == "x" * 299 + "…"
    assert (
        task(replace(FAILED, error={**ERROR, "message": "x" * 300}), with_progress=False)["statusMessage"] == "x" * 300
    )


def test_a_result_is_that_of_the_call_and_names_its_task() -> None:
    for view in (COMPLETED, ERRED):
        assert view.result is not None
        assert final_result(view) == {**view.result, **related("t_1")}
        published.CallToolResult.model_validate(final_result(view))
        published.GetTaskPayloadResult.model_validate(final_result(view))
    own = replace(COMPLETED, result=result("a", structuredContent={"a": 1}, _meta={OWN: 1}))
    assert final_result(own) == result("a", structuredContent={"a": 1}, _meta={OWN: 1, RELATED_TASK: {"taskId": "t_1"}})


def test_a_cancelled_task_has_a_result_that_says_so() -> None:
    for view in (CANCELLED, replace(CANCELLED, opened=False)):
        told = final_result(view)
        assert told == {**result("The task was cancelled by request.", is_error=True), **related("t_1")}
        published.CallToolResult.model_validate(told)


@pytest.mark.parametrize(
    ("view", "code", "message", "data"),
    [
        (FAILED, -32000, "Out of tea", {"left": 0}),
        (replace(FAILED, error={"code": 7, "message": "No"}), 7, "No", None),
        (replace(ENDED, phase=Phase.DONE, opened=False), -32603, "The task cannot be read", None),
        (replace(RUNNING, opened=False), -32603, "The task cannot be read", None),
    ],
)
def test_an_error_is_repeated(view: TaskView, code: int, message: str, data: Any) -> None:
    for tell in (final_result, call_result):
        with pytest.raises(RpcError) as caught:
            tell(view)
        assert (caught.value.code, caught.value.message, caught.value.data) == (code, message, data)


def test_a_waiting_task_asks_by_the_keys_of_the_wire() -> None:
    requests = {"who~2": {"method": QUESTION.method, "params": QUESTION.params}}
    assert asking(WAITING) == {"inputRequests": requests, **related("t_1")}


def test_the_metadata_is_of_the_published_type() -> None:
    published.RelatedTaskMetadata.model_validate(related("t_1")["_meta"][RELATED_TASK])


@pytest.mark.parametrize(
    ("params", "wish"),
    [
        ({}, None),
        ({"task": None}, None),
        ({"task": {}}, TaskWish(None, None)),
        ({"task": {"ttl": None}}, TaskWish(None, None)),
        ({"task": {"ttl": 0, "responseModes": ["task"]}}, TaskWish(0, ["task"])),
        ({"task": {"ttl": 60_000.9, "other": 1}}, TaskWish(60_000, None)),
        ({"task": {"ttl": 10**300}}, TaskWish(10**300, None)),
    ],
)
def test_what_is_asked_of_a_task_is_read(params: dict[str, Any], wish: TaskWish | None) -> None:
    assert read_task_params(params) == wish


@pytest.mark.parametrize("ttl", [-1, -0.5, True, False, "60000", [], {}])
def test_a_time_to_live_is_a_number_of_milliseconds(ttl: Any) -> None:
    with pytest.raises(InvalidParams, match=r"params\.task\.ttl must be a number of milliseconds, not less than 0"):
        read_task_params({"task": {"ttl": ttl}})


@given(json_values | st.fixed_dictionaries({}, optional={"ttl": json_values, "responseModes": json_values}))
def test_anything_in_place_of_a_task_is_read_or_refused_by_name(sent: Any) -> None:
    ttl = sent.get("ttl") if type(sent) is dict else sent
    if ttl is None or (type(sent) is dict and type(ttl) in (int, float) and ttl >= 0):
        wish = read_task_params({"task": sent})
        assert wish == (None if sent is None else TaskWish(ttl and int(ttl), sent.get("responseModes")))
    else:
        with pytest.raises(InvalidParams, match=r"params\.task"):
            read_task_params({"task": sent})


def test_an_unknown_task_and_an_id_that_none_can_have_look_alike() -> None:
    assert not_found().message == "Failed to retrieve task: Task not found"
    assert read_task_id({"taskId": "x" * 128}) == "x" * 128
    with pytest.raises(InvalidParams, match=not_found().message):
        read_task_id({"taskId": "x" * 129})
    with pytest.raises(InvalidParams, match=r"params\.taskId must be a string"):
        read_task_id({"taskId": 7})


def test_the_task_of_an_answer_is_named_in_its_metadata() -> None:
    assert read_related_task(related("t_1")) == "t_1"
    own = {"_meta": {OWN: {"taskId": "t_2"}}}
    assert read_related_task(own, (RELATED_TASK, OWN)) == "t_2"
    both = {"_meta": {**own["_meta"], **related("t_2")["_meta"]}}
    assert read_related_task(both, (RELATED_TASK, OWN)) == "t_2"


def test_an_answer_that_names_two_tasks_is_refused() -> None:
    both = {"_meta": {OWN: {"taskId": "t_2"}, **related("t_1")["_meta"]}}
    with pytest.raises(InvalidParams, match="several tasks"):
        read_related_task(both, (RELATED_TASK, OWN))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, 'params._meta["io.modelcontextprotocol/related-task"] must be an object that names the task'),
        ({"_meta": None}, 'params._meta["io.modelcontextprotocol/related-task"] must be an object that names the task'),
        ({"_meta": 1}, "params._meta must be an object"),
        (
            {"_meta": {RELATED_TASK: "t"}},
            'params._meta["io.modelcontextprotocol/related-task"] must be an object that names the task',
        ),
        ({"_meta": {RELATED_TASK: {}}}, 'params._meta["io.modelcontextprotocol/related-task"].taskId must be a string'),
        ({"_meta": {RELATED_TASK: {"taskId": "x" * 129}}}, "Failed to retrieve task: Task not found"),
    ],
)
def test_an_answer_that_names_no_task_is_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        read_related_task(params)
    assert caught.value.message == message


def test_of_several_names_the_first_is_asked_for() -> None:
    with pytest.raises(InvalidParams, match=RELATED_TASK):
        read_related_task({}, (RELATED_TASK, OWN))


@given(json_values, json_values, json_values)
def test_anything_in_place_of_the_metadata_is_read_or_refused(meta: Any, wish: Any, task_id: Any) -> None:
    for params in ({"_meta": meta}, {"_meta": {RELATED_TASK: wish}}, {"_meta": {RELATED_TASK: {"taskId": task_id}}}):
        with contextlib.suppress(InvalidParams):
            assert type(read_related_task(params)) is str
