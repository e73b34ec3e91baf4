"""Pure: tasks that a client requests with `params.task`, in the format of 2025-11-25 "Tasks".

The draft wire uses the same format, and adds progress (proposal "Task Progress").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from gateway.errors import InvalidParams, RpcError
from gateway.protocol import task_format as task_words
from gateway.protocol.fields import read_duration_ms, read_object, require_object
from gateway.protocol.jsonrpc import notification
from gateway.tasks.model import Phase, TaskView, texts_of
from gateway.tasks.retention import poll_interval_ms

RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
"""The name in `_meta` that links a message to a task (section "Related Task Metadata")."""

GONE: Final = "The task has expired or was deleted"
"""The message for a client that waits for a task which no longer exists."""

_MAX_FAILURE_CHARS: Final = 300
_CANCELLED: Final = "The task was cancelled by request."
_WORKING: Final = "The task is in progress."
_COMPLETED: Final = "The task is completed; tasks/result returns its result."


class TaskWish(msgspec.Struct, frozen=True):
    """The `task` parameter, which asks for a request to become a task.

    The client wants the task kept for `ttl_ms` after its creation. `response_modes` is `responseModes` as sent, of any
    type; only the draft wire reads it.
    """

    ttl_ms: int | None
    response_modes: Any


def not_found() -> InvalidParams:
    """Return the error for a task that the caller cannot access (section "Protocol Errors")."""
    return InvalidParams("Failed to retrieve task: Task not found")


def gone() -> InvalidParams:
    """Return the error for a request that waited for a task which no longer exists."""
    return InvalidParams(f"Failed to retrieve task: {GONE}")


def read_task_params(params: Mapping[str, Any]) -> TaskWish | None:
    """Read `params.task`, or return None if the request does not ask for a task (section "Task Parameters").

    If it or its `ttl` has the wrong type, this raises `InvalidParams`.
    """
    if params.get("task") is None:
        return None
    wish = require_object(params, "task")
    return TaskWish(read_duration_ms(wish, "ttl", "params.task"), wish.get("responseModes"))


def read_task_id(params: Mapping[str, Any]) -> str:
    """Read the `taskId` of `tasks/get`, `tasks/result`, `tasks/cancel` or `tasks/delete`, or raise `InvalidParams`."""
    return task_words.read_task_id(params, not_found)


def read_related_task(params: Mapping[str, Any], names: Sequence[str] = (RELATED_TASK,)) -> str:
    """Read the id of the task that a request such as `tasks/input_response` belongs to.

    `names` are the possible names in `_meta`. If there are several, they must name the same task.

    Raises:
        InvalidParams: the id is missing or has the wrong type, or there are several; the message names the member.
    """
    meta = read_object(params, "_meta")
    found = set()
    for name in [name for name in names if name in meta] or names[:1]:
        where = f'params._meta["{name}"]'
        if type(meta.get(name)) is not dict:
            raise InvalidParams(f"{where} must be an object that names the task")
        found.add(task_words.read_task_id(meta[name], not_found, where))
    if len(found) > 1:
        raise InvalidParams("params._meta names several tasks")
    return found.pop()


def status(view: TaskView) -> str:
    """Return the status of a task. A task with an error result has failed (section "Task Status")."""
    told = task_words.status(view)
    return "failed" if told == "completed" and _is_error(view) else told


def has_ended(view: TaskView) -> bool:
    """Return whether `tasks/result` need not wait: the task has ended, or its result cannot be read."""
    return view.phase.ended or not view.opened


def task(view: TaskView, with_progress: bool) -> dict[str, Any]:
    """Return the `Task` (section "Data Types"). If `with_progress`, that is reported in separate fields."""
    told: dict[str, Any] = {"taskId": view.task_id, "status": status(view)}
    message = status_message(view, told["status"])
    if message is not None:
        told["statusMessage"] = message
    told["createdAt"] = task_words.iso_time(view.created_ms)
    told["lastUpdatedAt"] = task_words.iso_time(view.updated_ms)
    told["ttl"] = view.ttl_ms
    told["pollInterval"] = poll_interval_ms(view.now_ms - view.created_ms)
    return {**told, **progress(view)} if with_progress else told


def created(view: TaskView, with_progress: bool) -> dict[str, Any]:
    """Return the `CreateTaskResult` (section "Creating Tasks"); see `task`."""
    return {"task": task(view, with_progress)}


def status_notification(view: TaskView, with_progress: bool) -> bytes:
    """Encode the notification of a task's status (section "Task Status Notification"); see `task`."""
    return notification("notifications/tasks/status", task(view, with_progress))


def related(task_id: str) -> dict[str, Any]:
    """Return the member that links a result or a request to a task (section "Related Task Metadata")."""
    return {"_meta": {RELATED_TASK: {"taskId": task_id}}}


def asking(view: TaskView) -> dict[str, Any]:
    """Return the answer to `tasks/result` while a task waits (proposal "Multi Round-Trip Requests")."""
    return {"inputRequests": task_words.input_requests(view), **related(view.task_id)}


def final_result(view: TaskView) -> dict[str, Any]:
    """Return the answer to `tasks/result` for a task that `has_ended` (section "Result Retrieval").

    It is the answer that the call itself would have had, with a link to the task. If the task ended with an error or
    cannot be read, this raises that error.
    """
    return joined(call_result(view), related(view.task_id))


def call_result(view: TaskView) -> Mapping[str, Any]:
    """Return the result of the call behind a task that `has_ended`. For a cancelled task, the result says so.

    If the task ended with an error or cannot be read, this raises that error.
    """
    if view.phase is Phase.CANCELLED:
        return {"content": [{"type": "text", "text": _CANCELLED}], "isError": True}
    if view.result is not None:
        return view.result
    error = task_words.error_of(view)
    raise RpcError(error["code"], error["message"], error.get("data"))


def joined(result: Mapping[str, Any], related: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result with its link to a task added to its `_meta`."""
    return {**result, "_meta": {**(result.get("_meta") or {}), **related["_meta"]}}


def progress(view: TaskView) -> dict[str, Any]:
    """Return the progress of a task, if its tool has reported any (proposal "Task Progress").

    A total that is less than the work already done is omitted.
    """
    if view.progress is None:
        return {}
    done, total, _ = view.progress
    return {"progress": done} if total is None or total < done else {"progress": done, "progressTotal": total}


def status_message(view: TaskView, told: str) -> str | None:
    """Return the message for people about a task with this status; None if this format does not have the status."""
    match told:
        case "input_required":
            return "Input is required; tasks/result returns the questions."
        case "working":
            return (view.progress and view.progress.message) or _WORKING
        case "completed":
            return _COMPLETED
        case "cancelled":
            return _CANCELLED
        case "failed":
            return failure(view)
    return None


def failure(view: TaskView) -> str:
    """Return why a task failed, in a few hundred characters.

    In a tool's result, the reason is the last text: the blocks that it emitted before come first.
    """
    text = str(task_words.error_of(view)["message"]) if view.result is None else _last_text(view.result)
    return text if len(text) <= _MAX_FAILURE_CHARS else text[: _MAX_FAILURE_CHARS - 1] + "…"


def _is_error(view: TaskView) -> bool:
    return view.result is not None and view.result.get("isError") is True


def _last_text(result: Mapping[str, Any]) -> str:
    texts = texts_of(result)
    return texts[-1] if texts else "The tool reported an error"
