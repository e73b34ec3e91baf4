"""The end of a process: its last log line, and an exit that does not wait for threads."""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import Final, NoReturn

from gateway.process.supervisor import notify_stopping

log = logging.getLogger(__name__)


class Ending:
    """Times a process from the creation of this object, and reports its end."""

    def __init__(self) -> None:
        self._began: Final = time.monotonic()
        self._signalled_at: float | None = None

    def signalled(self) -> None:
        """Record that the process was asked to stop. Only the first time counts."""
        if self._signalled_at is None:
            self._signalled_at = time.monotonic()
            notify_stopping()

    def stopped(self, exit_code: int, busy_threads: int = 0) -> int:
        """Log that the process has stopped, as its last line, and return the exit code.

        If threads run blocking functions of tools, the process exits here: nothing can stop them, and Python would wait
        for them.
        """
        if busy_threads:
            log.warning("blocking functions of tools are left behind", extra={"threads": busy_threads})
        now = time.monotonic()
        stopping = 0.0 if self._signalled_at is None else now - self._signalled_at
        times = {"seconds": round(stopping, 3), "uptime_seconds": round(now - self._began, 3)}
        log.info("stopped", extra={"exit_code": exit_code, **times})
        if busy_threads:
            exit_now(exit_code)
        return exit_code


def exit_now(exit_code: int) -> NoReturn:
    """End the process even if threads still run."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)
