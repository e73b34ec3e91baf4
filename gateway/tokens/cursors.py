"""Cursors of `tasks/list`: sealed for one caller, so that they tell nothing and lead nobody into another's list."""

from __future__ import annotations

from gateway.errors import InvalidParams
from gateway.protocol.caller import Caller
from gateway.sealing.binding import cursor_binding
from gateway.sealing.envelope import Rejected, Sealer
from gateway.sealing.task_list_cursor import open_task_cursor, seal_task_cursor
from gateway.tasks.ports import TaskPlaceMark

_METHOD = "tasks/list"


class TaskCursors:
    """Writes cursors, and reads them on any replica.

    Args:
        sealer: seals and opens under the key ring that all replicas share.
        audience: the name all replicas of this deployment share.
    """

    def __init__(self, sealer: Sealer, audience: str) -> None:
        self._sealer = sealer
        self._audience = audience

    def replace_sealer(self, sealer: Sealer) -> None:
        """Seal and open with another sealer from now on."""
        self._sealer = sealer

    def make(self, mark: TaskPlaceMark, caller: Caller) -> str:
        """Return the cursor that goes on after a task."""
        return seal_task_cursor(self._sealer, mark, aad=self._aad(caller))

    def read(self, cursor: str | None, caller: Caller) -> TaskPlaceMark | None:
        """Return where a cursor goes on, None for the first page.

        Raises:
            InvalidParams: it is none of ours for this caller.
        """
        if cursor is None:
            return None
        try:
            expires_ms, task_id = open_task_cursor(self._sealer, cursor, aad=self._aad(caller))
        except Rejected:
            raise InvalidParams("Unknown cursor") from None
        return TaskPlaceMark(expires_ms, task_id)

    def _aad(self, caller: Caller) -> bytes:
        return cursor_binding(self._audience, caller.principal, _METHOD)
