"""Pure: tasks as first proposed, in the format of SEP-1686 "Tasks": the client chooses their ids, and polls or waits.

Only tasks that were created in this form use this format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gateway.errors import InvalidParams
from gateway.protocol import task_format as task_words
from gateway.protocol.fields import read_duration_ms, read_string
from gateway.protocol.handshake import tasks
from gateway.protocol.jsonrpc import notification
from gateway.protocol.requests import MAX_TASK_ID_CHARS
from gateway.tasks.model import Phase, TaskView
from gateway.tasks.retention import poll_interval_ms

TASK: Final = "modelcontextprotocol.io/task"
"""The name in `_meta` that asks for a request to become a task (section 3.1)."""

RELATED_TASK: Final = "modelcontextprotocol.io/related-task"
"""The name in `_meta` that links a message to a task (section 4.7)."""

_TASK_ID: Final = re.compile(rf"[!-~]{{1,{MAX_TASK_ID_CHARS}}}", re.ASCII)


class FirstForm(msgspec.Struct, frozen=True):
    """The metadata that asks for a request to become a task (section "Task Metadata").

    The client chose the id. The result is to be kept for `keep_alive_ms` after the end of the task.
    """

    task_id: str
    keep_alive_ms: int | None


def read_first_form(meta: Mapping[str, Any]) -> FirstForm | None:
    """Read the `params._meta` that asks for a task of this form, or return None without any (section 3.1).

    Raises:
        InvalidParams: a member has the wrong type, or the id is not 1 to 128 visible ASCII characters.
    """
    wish, where = meta.get(TASK), f'params._meta["{TASK}"]'
    if wish is None:
        return None
    if type(wish) is not dict:
        raise InvalidParams(f"{where} must be an object")
    task_id = read_string(wish, "taskId", where)
    if not _TASK_ID.fullmatch(task_id):
        raise InvalidParams(f"{where}.taskId must be 1 to {MAX_TASK_ID_CHARS} visible ASCII characters")
    return FirstForm(task_id, read_duration_ms(wish, "keepAlive", where))


def status(view: TaskView) -> str:
    """Return the status of a task (section 4.3). A task that has started never returns to `submitted`."""
    if not view.opened and view.phase is not Phase.CANCELLED:
        return "unknown"
    if view.phase is Phase.QUEUED and view.generation == 0:
        return "submitted"
    return task_words.status(view)


def task(view: TaskView) -> dict[str, Any]:
    """Return the task's entry in `tasks/list` (section 3.5; proposal "Task Progress")."""
    told: dict[str, Any] = {
        "taskId": view.task_id,
        "status": status(view),
        "keepAlive": view.kept_ms,
        "pollFrequency": poll_interval_ms(view.now_ms - view.created_ms),
    }
    message = tasks.status_message(view, told["status"])
    if told["status"] == "failed":
        told["error"] = tasks.failure(view)
    elif message is not None:
        told["statusMessage"] = message
    return {**told, **tasks.progress(view)}


def answer(view: TaskView) -> dict[str, Any]:
    """Return the answer to `tasks/get` (section 3.2)."""
    return {**task(view), **related(view.task_id)}


def related(task_id: str) -> dict[str, Any]:
    """Return the member that links a result, or the parameters of a message, to a task (section 4.7)."""
    return {"_meta": {RELATED_TASK: {"taskId": task_id}}}


def created_notification(task_id: str) -> bytes:
    """Encode the notification that a task was created (section 3.4)."""
    return notification("notifications/tasks/created", related(task_id))


def status_notification(view: TaskView) -> bytes:
    """Encode the notification of a task's status (proposal "Task Progress")."""
    return notification("notifications/tasks/status", answer(view))


def final_result(view: TaskView) -> dict[str, Any]:
    """Return the answer to `tasks/result` for a completed task (sections 3.3 and 4.6).

    For any other task, this raises `InvalidParams`; see `not_completed`.
    """
    if status(view) != "completed":
        raise not_completed(view)
    return call_result(view)


def call_result(view: TaskView) -> dict[str, Any]:
    """Return the final answer to the request that became the task (section 3.4), or raise the error of the task."""
    return tasks.joined(tasks.call_result(view), related(view.task_id))


def not_completed(view: TaskView) -> InvalidParams:
    """Return the error for a task that has no result, or no result yet (section 7.1).

    While the task waits for answers, `data.inputRequests` has its questions.
    """
    data = {"inputRequests": task_words.input_requests(view)} if view.questions else None
    return InvalidParams(f"Cannot retrieve result: Task status is '{status(view)}', not 'completed'", data)


def already_exists(task_id: str) -> InvalidParams:
    """Return the error for a task id that the client has already used (section 7.1)."""
    return InvalidParams(f"Task ID already exists: {task_id}")
