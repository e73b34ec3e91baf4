"""Pure: tasks in the format of the 2026-07-28 wire, extension `io.modelcontextprotocol/tasks`.

The stored task is neutral (`gateway.tasks.model`). This module writes it for `tasks/get`, for `notifications/tasks`,
and for the answer to a call that became a task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gateway.errors import InvalidParams
from gateway.protocol import task_format as task_words
from gateway.protocol.error_codes import code_on
from gateway.protocol.fields import require_object
from gateway.protocol.versions import Wire
from gateway.tasks.model import Progress, TaskView
from gateway.tasks.retention import poll_interval_ms

META_PROGRESS: Final = "dev.sealedgateway/progress"
"""The name in `_meta` of a task's progress: `{"progress": …, "total": …}`, with the total only if it is known."""


class TaskUpdate(msgspec.Struct, frozen=True):
    """The parameters of `tasks/update`: answers by the wire key of each question, not yet checked."""

    task_id: str
    input_responses: dict[str, Any]


def not_found() -> InvalidParams:
    """Return the error for a task that the caller cannot access, whatever the reason."""
    return InvalidParams("Task not found")


def read_task_id(params: Mapping[str, Any]) -> str:
    """Read the parameters of `tasks/get` and `tasks/cancel`, or raise `InvalidParams`."""
    return task_words.read_task_id(params, not_found)


def read_task_update(params: Mapping[str, Any]) -> TaskUpdate:
    """Read the parameters of `tasks/update`. A wrong type raises `InvalidParams`, which names the member."""
    return TaskUpdate(read_task_id(params), require_object(params, "inputResponses"))


def task(view: TaskView) -> dict[str, Any]:
    """Return the `Task`: the fields that a task has in every status."""
    told: dict[str, Any] = {"taskId": view.task_id, "status": task_words.status(view)}
    message = _status_message(view)
    if message is not None:
        told["statusMessage"] = message
    told["createdAt"] = task_words.iso_time(view.created_ms)
    told["lastUpdatedAt"] = task_words.iso_time(view.updated_ms)
    told["ttlMs"] = view.ttl_ms
    told["pollIntervalMs"] = poll_interval_ms(view.now_ms - view.created_ms)
    return told


def detailed_task(view: TaskView) -> dict[str, Any]:
    """Return the `DetailedTask`: the `Task`, with the fields of its status."""
    told = task(view)
    match told["status"]:
        case "input_required":
            told["inputRequests"] = task_words.input_requests(view)
        case "completed":
            told["result"] = {"resultType": "complete", **(view.result or {})}
        case "failed":
            error = task_words.error_of(view)
            told["error"] = {**error, "code": code_on(Wire.RELEASED, error["code"])}
    return told


def task_meta(view: TaskView) -> dict[str, Any]:
    """Return the `_meta` of a task: its progress, if the tool has reported any."""
    if view.progress is None:
        return {}
    progress: dict[str, Any] = {"progress": view.progress.done}
    if view.progress.total is not None:
        progress["total"] = view.progress.total
    return {META_PROGRESS: progress}


def _status_message(view: TaskView) -> str | None:
    if task_words.status(view) == "failed":
        return str(task_words.error_of(view)["message"])
    if view.progress is None or view.phase.ended:
        return None
    return _progress_message(view.progress)


def _progress_message(progress: Progress) -> str:
    numbers = _number(progress.done)
    if progress.total is not None:
        numbers += f" of {_number(progress.total)}"
    return f"{progress.message} ({numbers})" if progress.message else numbers


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)
