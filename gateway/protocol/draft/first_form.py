"""Pure: tasks as first proposed, in the words of SEP-1686 "Tasks": the client names them, and polls or waits.

Only a task that was created in this form is told in these words.
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
"""The name in `_meta` of a request that is to become a task (section 3.1)."""

RELATED_TASK: Final = "modelcontextprotocol.io/related-task"
"""The name in `_meta` that joins a message to a task (section 4.7)."""

_TASK_ID: Final = re.compile(rf"[!-~]{{1,{MAX_TASK_ID_CHARS}}}", re.ASCII)


class FirstForm(msgspec.Struct, frozen=True):
    """The metadata of a request that is to become a task (section "Task Metadata").

    Attributes:
        task_id: the client's own name for the task.
        keep_alive_ms: how long the client wants the result to be kept from the end on, None if it does not say.
    """

    task_id: str
    keep_alive_ms: int | None


def read_first_form(meta: Mapping[str, Any]) -> FirstForm | None:
    """Read what makes a request a task of this form, None if nothing does (section 3.1).

    Args:
        meta: `params._meta`.

    Raises:
        InvalidParams: it, or a member of it, has the wrong type; or the id is not 1 to 128 visible ASCII characters.
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
    """Return the status of a task (section 4.3). One that has begun never goes back to `submitted`."""
    if not view.opened and view.phase is not Phase.CANCELLED:
        return "unknown"
    if view.phase is Phase.QUEUED and view.generation == 0:
        return "submitted"
    return task_words.status(view)


def task(view: TaskView) -> dict[str, Any]:
    """Return the task as `tasks/list` tells it (section 3.5; proposal "Task Progress")."""
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
    """Return the task as the answer to `tasks/get` (section 3.2)."""
    return {**task(view), **related(view.task_id)}


def related(task_id: str) -> dict[str, Any]:
    """Return what joins a message's result or parameters to a task (section 4.7)."""
    return {"_meta": {RELATED_TASK: {"taskId": task_id}}}


def created_notification(task_id: str) -> bytes:
    """Tell that a task can be asked about from now on (section 3.4)."""
    return notification("notifications/tasks/created", related(task_id))


def status_notification(view: TaskView) -> bytes:
    """Tell what has become of a task (proposal "Task Progress")."""
    return notification("notifications/tasks/status", answer(view))


def final_result(view: TaskView) -> dict[str, Any]:
    """Return what `tasks/result` answers for a completed task (sections 3.3 and 4.6).

    Raises:
        InvalidParams: the task is not `completed`; see `not_completed`.
    """
    if status(view) != "completed":
        raise not_completed(view)
    return call_result(view)


def call_result(view: TaskView) -> dict[str, Any]:
    """Return what the request itself that became a task is answered with in the end (section 3.4).

    Raises:
        RpcError: the task ended with this error, or cannot be read.
    """
    return tasks.joined(tasks.call_result(view), related(view.task_id))


def not_completed(view: TaskView) -> InvalidParams:
    """Return the error for who asks too early, or in vain, for a result (section 7.1).

    While the task waits, `data.inputRequests` has what it asks.
    """
    data = {"inputRequests": task_words.input_requests(view)} if view.questions else None
    return InvalidParams(f"Cannot retrieve result: Task status is '{status(view)}', not 'completed'", data)


def already_exists(task_id: str) -> InvalidParams:
    """Return the error for who names a task as they have named one before (section 7.1)."""
    return InvalidParams(f"Task ID already exists: {task_id}")
