"""Tasks that cannot be read here, and their log: one line for each task, however often it is read."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from gateway.errors import RejectReason

log = logging.getLogger("gateway.storage")

MAX_NOTED: Final = 1000
"""How many tasks are remembered. While so many are, others that cannot be read are only counted."""

FORGET_SECONDS: Final = 3600.0
"""How long a task is remembered once there are so many."""

_LINES: Final = {
    RejectReason.UNKNOWN_KEY: "task cannot be opened with the keys of this process",
    RejectReason.NEWER_SCHEMA: "task was stored by a newer release",
}
_DAMAGED: Final = "task is damaged in the store"


class Unreadable(Exception):
    """A task's record, or one of its values, cannot be read here.

    A key is missing here, a newer release wrote it, or it is damaged. `field` is the name of the first such field.
    """

    def __init__(self, reason: RejectReason, field: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.reason = reason
        self.field = field


class UnreadableLog:
    """Logs each task that cannot be read once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._noted: dict[tuple[str, str, str], float] = {}  # the oldest first

    def note(self, owner: str, task_id: str, problem: Unreadable) -> None:
        """Log that a task cannot be read, unless that was logged before."""
        line = _LINES.get(problem.reason, _DAMAGED)
        key = (owner, task_id, line)
        if key in self._noted or not self._has_room():
            return
        self._noted[key] = self._clock()
        log.warning(line, extra={"task": task_id, "field": problem.field, "reason": problem.reason.value})

    def _has_room(self) -> bool:
        while len(self._noted) >= MAX_NOTED:
            oldest = next(iter(self._noted))
            if self._clock() - self._noted[oldest] < FORGET_SECONDS:
                return False
            del self._noted[oldest]
        return True
