"""Pure: notifications of the 2026-07-28 wire, each encoded as one line of JSON.

Progress and log messages belong to the stream that answers one request; all others to a
`subscriptions/listen` stream, and carry the id of its request (MCP "Progress", "Logging", "Subscriptions").
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from gateway.protocol.jsonrpc import RequestId, notification
from gateway.protocol.released.requests import ListenFilter
from gateway.protocol.versions import LOG_LEVELS, META_SUBSCRIPTION_ID

ListName: TypeAlias = Literal["tools", "prompts", "resources"]

_SEVERITY: Final = {level: severity for severity, level in enumerate(LOG_LEVELS)}


def progress(token: str | int, done: float, total: float | None = None, message: str | None = None) -> bytes:
    """Tell how far a request is. Whoever calls sees to it that `done` only rises.

    Args:
        token: the `progressToken` of the request.
        done: in any unit.
        total: in the same unit, or None if it is not known.
        message: for people.

    Raises:
        ValueError: `done` or `total` is infinite or no number at all, which JSON cannot tell.
    """
    params: dict[str, Any] = {"progressToken": token, "progress": done}
    if total is not None:
        params["total"] = total
    if message is not None:
        params["message"] = message
    # Not `math.isfinite`, which turns integers into floats first.
    if not -math.inf < done < math.inf or not -math.inf < (total or 0) < math.inf:
        raise ValueError("progress is told in finite numbers")
    return notification("notifications/progress", params)


def is_logged(level: str, minimum: str | None) -> bool:
    """Whether a message of this level goes to a client that asked for `minimum` and above; None asks for none.

    Raises:
        ValueError: one of them is not in `LOG_LEVELS`.
    """
    if level not in _SEVERITY or (minimum is not None and minimum not in _SEVERITY):
        raise ValueError(f"a log level is one of {', '.join(LOG_LEVELS)}")
    return minimum is not None and _SEVERITY[level] >= _SEVERITY[minimum]


def log_message(level: str, data: Any, logger: str | None = None) -> bytes:
    """Send a log message; whether the client wants it is told by `is_logged`.

    Raises:
        TypeError, ValueError, RecursionError: the data has no JSON form, see `strict_json.encode`.
    """
    params: dict[str, Any] = {"level": level, "data": data}
    if logger is not None:
        params["logger"] = logger
    return notification("notifications/message", params)


def acknowledged(subscription_id: RequestId, honoured: ListenFilter) -> bytes:
    """Open a `subscriptions/listen` stream: nothing may come before this.

    Args:
        subscription_id: the id of the listen request.
        honoured: what will really be told of what was asked for.
    """
    notifications: dict[str, Any] = {}
    if honoured.tools:
        notifications["toolsListChanged"] = True
    if honoured.prompts:
        notifications["promptsListChanged"] = True
    if honoured.resources:
        notifications["resourcesListChanged"] = True
    if honoured.uris:
        notifications["resourceSubscriptions"] = honoured.uris
    if honoured.task_ids:
        notifications["taskIds"] = honoured.task_ids
    return _on_subscription("subscriptions/acknowledged", subscription_id, {"notifications": notifications})


def list_changed(name: ListName, subscription_id: RequestId) -> bytes:
    """Tell that a list is no longer what it was; a list of templates counts as one of resources."""
    return _on_subscription(f"{name}/list_changed", subscription_id, {})


def resource_updated(uri: str, subscription_id: RequestId) -> bytes:
    """Tell that a resource may have to be read again."""
    return _on_subscription("resources/updated", subscription_id, {"uri": uri})


def task_changed(subscription_id: RequestId, task: Mapping[str, Any], meta: Mapping[str, Any]) -> bytes:
    """Tell what has become of a task.

    Args:
        subscription_id: the id of the listen request.
        task: the `DetailedTask`, as `tasks/get` would tell it now.
        meta: more of `_meta`.
    """
    return _on_subscription("tasks", subscription_id, task, meta)


def _on_subscription(
    name: str, subscription_id: RequestId, params: Mapping[str, Any], meta: Mapping[str, Any] | None = None
) -> bytes:
    told = {**params, "_meta": {**(meta or {}), META_SUBSCRIPTION_ID: subscription_id}}
    return notification(f"notifications/{name}", told)
