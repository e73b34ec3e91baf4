"""Pure: notifications of the 2026-07-28 wire, each encoded as one line of JSON.

They belong to a `subscriptions/listen` stream and carry the id of its request (MCP "Subscriptions").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from gateway.protocol.jsonrpc import RequestId, notification
from gateway.protocol.released.requests import ListenFilter
from gateway.protocol.versions import META_SUBSCRIPTION_ID

ListName: TypeAlias = Literal["tools", "prompts", "resources"]


def acknowledged(subscription_id: RequestId, honoured: ListenFilter) -> bytes:
    """Encode the acknowledgement that opens a `subscriptions/listen` stream. It must be the first message.

    `subscription_id` is the id of the listen request. `honoured` is the part of the requested filter that is served.
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
    """Encode the notification that a list has changed. Resource templates belong to the list of resources."""
    return _on_subscription(f"{name}/list_changed", subscription_id, {})


def resource_updated(uri: str, subscription_id: RequestId) -> bytes:
    """Encode the notification that a resource has changed."""
    return _on_subscription("resources/updated", subscription_id, {"uri": uri})


def task_changed(subscription_id: RequestId, task: Mapping[str, Any], meta: Mapping[str, Any]) -> bytes:
    """Encode the notification that a task has changed.

    `task` is the `DetailedTask`, as `tasks/get` would return it now. `meta` has additional members of `_meta`.
    """
    return _on_subscription("tasks", subscription_id, task, meta)


def _on_subscription(
    name: str, subscription_id: RequestId, params: Mapping[str, Any], meta: Mapping[str, Any] | None = None
) -> bytes:
    told = {**params, "_meta": {**(meta or {}), META_SUBSCRIPTION_ID: subscription_id}}
    return notification(f"notifications/{name}", told)
