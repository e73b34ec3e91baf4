"""Pure: the parts of a task's format that are the same on all wires."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from gateway.errors import InternalError, InvalidParams
from gateway.protocol.fields import read_string
from gateway.protocol.requests import MAX_TASK_ID_CHARS
from gateway.tasks.model import Phase, TaskView

_STATUS: Final = {
    Phase.QUEUED: "working",
    Phase.RUNNING: "working",
    Phase.WAITING: "input_required",
    Phase.DONE: "completed",
    Phase.CANCELLED: "cancelled",
}


def status(view: TaskView) -> str:
    """Return the status of a task. A task that cannot be read has failed, unless it was cancelled."""
    if view.phase is Phase.CANCELLED:
        return "cancelled"
    return _STATUS[view.phase] if view.opened and view.error is None else "failed"


def error_of(view: TaskView) -> Mapping[str, Any]:
    """Return the JSON-RPC error `{code, message, data?}` of a failed task. Without one, the task cannot be read."""
    if view.error is not None:
        return view.error
    unreadable = InternalError("The task cannot be read")
    return {"code": unreadable.code, "message": unreadable.message}


def input_requests(view: TaskView) -> dict[str, Any]:
    """Return the questions of a waiting task: wire key → `{method, params}`."""
    return {key: {"method": question.method, "params": question.params} for key, question in view.questions.items()}


def iso_time(milliseconds: int) -> str:
    """Write a time since the epoch as ISO 8601, in UTC."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_task_id(node: Mapping[str, Any], not_found: Callable[[], InvalidParams], parent: str = "params") -> str:
    """Read the `taskId` of a task to look up, or raise `InvalidParams`.

    `not_found` makes the error for an id that no task can have, such as one that is too long. `parent` is the place of
    `node` in the request.
    """
    task_id = read_string(node, "taskId", parent)
    if len(task_id) > MAX_TASK_ID_CHARS:
        raise not_found()
    return task_id
