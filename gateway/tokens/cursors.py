"""Cursors of `tasks/list`, sealed for one caller: they reveal nothing, and do not work for another caller."""

from __future__ import annotations

from gateway.errors import InvalidParams
from gateway.protocol.caller import Caller
from gateway.sealing.binding import cursor_binding
from gateway.sealing.envelope import Rejected
from gateway.sealing.task_list_cursor import open_task_cursor, seal_task_cursor
from gateway.tasks.ports import TaskPlaceMark
from gateway.tokens.key_holder import KeyHolder

_METHOD = "tasks/list"


class TaskCursors:
    """Makes cursors, and reads them on any replica."""

    def __init__(self, keys: KeyHolder) -> None:
        self._keys = keys

    def make(self, mark: TaskPlaceMark, caller: Caller) -> str:
        """Return the cursor for the page after a task."""
        return seal_task_cursor(self._keys.current, mark, aad=self._aad(caller))

    def read(self, cursor: str | None, caller: Caller) -> TaskPlaceMark | None:
        """Return the place that a cursor marks, None for the first page.

        Raises:
            InvalidParams: it is not a cursor of ours for this caller.
        """
        if cursor is None:
            return None
        try:
            expires_ms, task_id = open_task_cursor(self._keys.current, cursor, aad=self._aad(caller))
        except Rejected:
            raise InvalidParams("Unknown cursor") from None
        return TaskPlaceMark(expires_ms, task_id)

    def _aad(self, caller: Caller) -> bytes:
        return cursor_binding(self._keys.audience, caller.principal, _METHOD)
