"""Pure: tasks that a client orders with `params.task`, in the words of 2025-11-25 "Tasks".

The draft wire tells them in the same words, and besides how far they are (proposal "Task Progress").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from gateway.errors import InvalidParams, RpcError
from gateway.protocol import task_format as task_words
from gateway.protocol.fields import read_duration_ms, read_object, require_object
from gateway.protocol.jsonrpc import notification
from gateway.tasks.model import Phase, TaskView
from gateway.tasks.retention import poll_interval_ms

RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
"""The name in `_meta` that joins a message to a task (section "Related Task Metadata")."""

GONE: Final = "The task has expired or was deleted"
"""What a client is told that waits for a task which is no longer there."""

_MAX_FAILURE_CHARS: Final = 300
_CANCELLED: Final = "The task was cancelled by request."
_WORKING: Final = "The task is in progress."
_COMPLETED: Final = "The task is completed; tasks/result returns its result."


class TaskWish(msgspec.Struct, frozen=True):
    """The `task` of a request that is to become one.

    Attributes:
        ttl_ms: how long the client wants the task to be kept from its creation, None if it does not say.
        response_modes: `responseModes` as sent, of any type, None if absent; only the draft wire looks at them.
    """

    ttl_ms: int | None
    response_modes: Any


def not_found() -> InvalidParams:
    """Return the error for every task that the caller cannot reach (section "Protocol Errors")."""
    return InvalidParams("Failed to retrieve task: Task not found")


def gone() -> InvalidParams:
    """Return the error for a request that waited for a task of the caller's, which is no longer there."""
    return InvalidParams(f"Failed to retrieve task: {GONE}")


def read_task_params(params: Mapping[str, Any]) -> TaskWish | None:
    """Read `params.task`, None if the request is to become no task (section "Task Parameters").

    Raises:
        InvalidParams: it, or its `ttl`, has the wrong type; the message names it.
    """
    if params.get("task") is None:
        return None
    wish = require_object(params, "task")
    return TaskWish(read_duration_ms(wish, "ttl", "params.task"), wish.get("responseModes"))


def read_task_id(params: Mapping[str, Any]) -> str:
    """Read the `taskId` that `tasks/get`, `tasks/result`, `tasks/cancel` and `tasks/delete` name.

    Raises:
        InvalidParams: it is missing, no string, or longer than that of any task.
    """
    return task_words.read_task_id(params, not_found)


def read_related_task(params: Mapping[str, Any], names: Sequence[str] = (RELATED_TASK,)) -> str:
    """Read the id of the task that a request belongs to, such as `tasks/input_response`.

    Args:
        params: of the request.
        names: what it may be called in `_meta`. Several name the same task.

    Raises:
        InvalidParams: it is missing or has the wrong type, or they name several; the message names it.
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
    """Return the status of a task; what a tool itself calls an error has failed (section "Task Status")."""
    told = task_words.status(view)
    return "failed" if told == "completed" and _is_error(view) else told


def has_ended(view: TaskView) -> bool:
    """Tell whether `tasks/result` has nothing to wait for: the task has ended, or nothing will be read of its end."""
    return view.phase.ended or not view.opened


def task(view: TaskView, with_progress: bool) -> dict[str, Any]:
    """Return the `Task` (section "Data Types").

    Args:
        view: the task.
        with_progress: whether how far it is has fields of its own.
    """
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
    """Tell what has become of a task (section "Task Status Notification"); see `task`."""
    return notification("notifications/tasks/status", task(view, with_progress))


def related(task_id: str) -> dict[str, Any]:
    """Return what joins a result, or the parameters of a request, to a task (section "Related Task Metadata")."""
    return {"_meta": {RELATED_TASK: {"taskId": task_id}}}


def asking(view: TaskView) -> dict[str, Any]:
    """Return what `tasks/result` answers while a task waits (proposal "Multi Round-Trip Requests")."""
    return {"inputRequests": task_words.input_requests(view), **related(view.task_id)}


def final_result(view: TaskView) -> dict[str, Any]:
    """Return what `tasks/result` answers for a task that `has_ended` (section "Result Retrieval").

    It is what the call itself would have been answered with, and says which task it belongs to.

    Raises:
        RpcError: the task ended with this error, or cannot be read.
    """
    return joined(call_result(view), related(view.task_id))


def call_result(view: TaskView) -> Mapping[str, Any]:
    """Return what the call of a task that `has_ended` came to; a cancelled one is told as a result that says so.

    Raises:
        RpcError: the task ended with this error, or cannot be read.
    """
    if view.phase is Phase.CANCELLED:
        return {"content": [{"type": "text", "text": _CANCELLED}], "isError": True}
    if view.result is not None:
        return view.result
    error = task_words.error_of(view)
    raise RpcError(error["code"], error["message"], error.get("data"))


def joined(result: Mapping[str, Any], related: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result with what joins it to a task, and the rest of its `_meta`."""
    return {**result, "_meta": {**(result.get("_meta") or {}), **related["_meta"]}}


def progress(view: TaskView) -> dict[str, Any]:
    """Return how far a task is, if its tool has told (proposal "Task Progress").

    A total that is less than what is done already is wrong, and left out.
    """
    if view.progress is None:
        return {}
    done, total, _ = view.progress
    return {"progress": done} if total is None or total < done else {"progress": done, "progressTotal": total}


def status_message(view: TaskView, told: str) -> str | None:
    """Return what people are told of a task with this status, None for one that these words do not know."""
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

    A tool's result ends with what went wrong: what it had emitted before comes first.
    """
    text = _last_text(view.result) if view.result is not None else str(task_words.error_of(view)["message"])
    return text if len(text) <= _MAX_FAILURE_CHARS else text[: _MAX_FAILURE_CHARS - 1] + "…"


def _is_error(view: TaskView) -> bool:
    return view.result is not None and view.result.get("isError") is True


def _last_text(result: Mapping[str, Any]) -> str:
    for block in reversed(result.get("content", ())):
        if block.get("type") == "text":
            return str(block.get("text"))
    return "The tool reported an error"
