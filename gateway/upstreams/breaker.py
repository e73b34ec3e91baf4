"""Stops calling an upstream that fails repeatedly, and finds out with one call when it works again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.upstreams.failures import Reason

FAILURES: Final = 5
"""How many requests in a row fail before the breaker opens."""

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 30.0

PROBE_SECONDS: Final = 5.0
"""How long a probe keeps out other requests. Then one more is let through: the first may only be a slow call."""

_UNHEALTHY: Final = frozenset(
    {
        Reason.UNREACHABLE,
        Reason.TIMED_OUT,
        Reason.CUT,
        Reason.MALFORMED,
        Reason.WRONG_ID,
        Reason.SERVER_ERROR,
    }
)
"""The failures that say something about the upstream. Others depend on the caller, the request or the gateway."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A request that the breaker let through. A probe finds out whether the upstream works again."""

    is_probe: bool


_ORDINARY: Final = Attempt(is_probe=False)


class Breaker:
    """Counts the failures of one upstream. It opens after several in a row, and then refuses requests for a while.

    After the pause one request at a time is let through. If it succeeds, the breaker closes; if it fails, the pause
    doubles. `on_change` is called with whether the breaker is open, when that changes.
    """

    def __init__(self, clock: Callable[[], float], on_change: Callable[[bool], None]) -> None:
        self._clock = clock
        self._on_change = on_change
        self._failures = 0
        self._pause = FIRST_PAUSE_SECONDS
        self._reopens_at = 0.0
        self._probe: Attempt | None = None
        self._probe_ends_at = 0.0
        self.is_open = False

    @property
    def refuses(self) -> bool:
        """Whether a request that started now would be refused."""
        if not self.is_open:
            return False
        now = self._clock()
        return now < self._reopens_at or (self._probe is not None and now < self._probe_ends_at)

    def start(self) -> Attempt | None:
        """Let a request through, or return None to refuse it. Report each attempt with exactly one of the others."""
        if not self.is_open:
            return _ORDINARY
        if self.refuses:
            return None
        self._probe = Attempt(is_probe=True)
        self._probe_ends_at = self._clock() + PROBE_SECONDS
        return self._probe

    def succeeded(self, attempt: Attempt) -> None:
        """Note that the upstream has answered, also if it answered with an error of its own."""
        self._end(attempt)
        self._failures = 0
        if self.is_open:
            self.is_open = False
            self._pause = FIRST_PAUSE_SECONDS
            self._on_change(False)

    def failed(self, attempt: Attempt, reason: Reason) -> None:
        """Note that a request has failed."""
        if reason not in _UNHEALTHY:
            self.abandoned(attempt)
            return
        is_newest_probe = attempt is self._probe
        self._end(attempt)
        self._failures += 1
        if self.is_open and is_newest_probe:
            self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
            self._reopens_at = self._clock() + self._pause
        elif not self.is_open and self._failures >= FAILURES:
            self.is_open = True
            self._reopens_at = self._clock() + self._pause
            self._on_change(True)

    def abandoned(self, attempt: Attempt) -> None:
        """Note that a request ended and says nothing about the upstream, such as one that its caller cancelled."""
        self._end(attempt)

    def _end(self, attempt: Attempt) -> None:
        if attempt is self._probe:
            self._probe = None
