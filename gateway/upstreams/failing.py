"""Refuses for a while what fails again and again for one caller. It stops nobody else, and nothing else of the caller.

A `Breaker` stops an upstream for everybody, by failures that no caller can cause.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, TypeAlias

from gateway.runtime.sources import Clock
from gateway.upstreams.breaker import FAILURES, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS

MAX_KEPT: Final = 1_000
"""How many callers and names are remembered for each upstream. Those that failed longest ago are forgotten first."""

Failing: TypeAlias = tuple[Hashable, str] | None
"""A caller and the name of a tool or prompt. None is not counted."""


@dataclass(slots=True)
class _InARow:
    failures: int = 0
    paused_until: float = 0.0


class FailingCalls:
    """Counts the calls that end in a time-out or a bad answer, for their tool or prompt and their caller.

    After several in a row, further ones are refused, with pauses that double while calls fail. `rows` has those whose
    last call has failed.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self.rows: OrderedDict[Failing, _InARow] = OrderedDict()

    def refuses(self, what: Failing) -> bool:
        """Return whether calls are refused now."""
        row = self.rows.get(what)
        return row is not None and self._clock() < row.paused_until

    def failed(self, what: Failing) -> None:
        """Count a failure. Those during a pause belong to calls that began before it, and do not count."""
        if what is None:
            return
        row = self.rows.setdefault(what, _InARow())
        self.rows.move_to_end(what)
        if len(self.rows) > MAX_KEPT:
            self.rows.popitem(last=False)
        now = self._clock()
        if now < row.paused_until:
            return
        row.failures += 1
        if row.failures >= FAILURES:
            doubled = float(2 ** min(row.failures - FAILURES, 10))
            row.paused_until = now + min(FIRST_PAUSE_SECONDS * doubled, LONGEST_PAUSE_SECONDS)

    def succeeded(self, what: Failing) -> None:
        """Note that the upstream has answered."""
        self.rows.pop(what, None)
