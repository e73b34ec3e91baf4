"""Pure: results of the handshake wires. They are plain, and have `_meta` only if it has content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.errors import MissingCapability
from gateway.protocol.handshake import tasks
from gateway.protocol.result_format import CacheScope
from gateway.tasks.model import TaskView

_NONE: Final[Mapping[str, Any]] = {}


class HandshakeResults:
    """Writes results. If `with_progress`, tasks report it in separate fields."""

    def __init__(self, *, with_progress: bool) -> None:
        self._with_progress = with_progress

    def complete(self, fields: Mapping[str, Any], meta: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return a result with these fields, and additional `_meta` if given.

        Structured content that is not an object is left out: these wires have no other.
        """
        if not isinstance(fields.get("structuredContent", _NONE), dict):
            fields = {name: field for name, field in fields.items() if name != "structuredContent"}
        return {**fields, "_meta": {**(fields.get("_meta") or {}), **meta}} if meta else dict(fields)

    def cacheable(self, fields: Mapping[str, Any], *, ttl_ms: int, scope: CacheScope) -> dict[str, Any]:
        """Return a result with these fields. These wires have no caching hints."""
        del ttl_ms, scope
        return dict(fields)

    def unable(self, error: MissingCapability) -> str | None:
        """Return the error's text, because these wires have no error for a missing capability."""
        return str(error)

    def task_created(self, view: TaskView) -> dict[str, Any]:
        """Return a `CreateTaskResult` (2025-11-25 "Tasks", Creating Tasks)."""
        return tasks.created(view, self._with_progress)
