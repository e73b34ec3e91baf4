"""The log of an unavailable task store: one line per process when an outage begins, one when it ends."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable

log = logging.getLogger("gateway.storage")

QUIET_SECONDS = 10.0
"""An outage ends when a command succeeds after this long without a failure. A full server still answers reads, and when
a server comes back, connections that were opened before still fail."""


class Outage:
    """The outages of one server, shared by all clients in this process. `reason` is the last failure, in words."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._reported = self._reported_refused = False
        self._failed_at = 0.0
        self.reason = ""
        self._lock = threading.Lock()

    def failed(self, error: BaseException) -> None:
        """Note a failure. The first one begins an outage and is logged, and so is the first refused login in one.

        A refused login is a `PermissionError`.
        """
        refused = isinstance(error, PermissionError)
        with self._lock:
            self._failed_at = self._clock()
            self.reason = f"{type(error).__name__}: {error}"
            if not self._reported or (refused and not self._reported_refused):
                self._reported = True
                self._reported_refused = refused
                log.warning("task store is not available", extra={"reason": self.reason})

    def worked(self) -> None:
        """Note that a command succeeded."""
        if self._reported and self._ends():
            log.warning("task store is available again")

    def _ends(self) -> bool:
        """End the outage if nothing has failed for long enough; return whether this call ended it."""
        with self._lock:
            if not self._reported or self._clock() - self._failed_at < QUIET_SECONDS:
                return False
            self._reported = self._reported_refused = False
            return True


outages: defaultdict[str, Outage] = defaultdict(Outage)
"""The outages by server URL, shared by the clients in this process."""
