"""Pure: results of the handshake wires: plain, with `_meta` only where there is something to tell in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.errors import MissingCapability
from gateway.protocol.handshake import tasks
from gateway.protocol.result_format import CacheScope
from gateway.tasks.model import TaskView


class HandshakeResults:
    """Writes results.

    Args:
        with_progress: whether tasks tell how far they are in fields of their own.
    """

    def __init__(self, *, with_progress: bool) -> None:
        self._with_progress = with_progress

    def complete(self, fields: Mapping[str, Any], meta: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return a result with these fields."""
        return {**fields, "_meta": meta} if meta else dict(fields)

    def cacheable(self, fields: Mapping[str, Any], *, ttl_ms: int, scope: CacheScope) -> dict[str, Any]:  # noqa: ARG002
        """Return a result with these fields; these wires do not tell how long one may be kept."""
        return dict(fields)

    def unable(self, error: MissingCapability) -> str | None:
        """Return what to do; this wire has no error for what a client cannot."""
        return str(error)

    def task_created(self, view: TaskView) -> dict[str, Any]:
        """Return a `CreateTaskResult` (2025-11-25 "Tasks", Creating Tasks)."""
        return tasks.created(view, self._with_progress)
