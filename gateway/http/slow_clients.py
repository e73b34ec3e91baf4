"""Clients that send or read slowly: how long each may take, and how many bytes may wait for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final

from gateway.http.limits import Limits

SWEEP_SECONDS: Final = 1.0
"""How often all connections are checked. A time limit may be exceeded by this much."""

LONGEST_STEP_SECONDS: Final = 2 * SWEEP_SECONDS
"""The most time that counts between two checks: if the event loop was blocked, it is not the clients' fault."""

STANDSTILL_SECONDS: Final = 1.0
"""After a standstill of this length, load balancers may have sent waiting requests to another replica."""

RECENT_SECONDS: Final = 0.5
"""How long after a standstill requests may still be read that arrived during it."""


class Due(Enum):
    """The data that the client must send next: a body, the rest of a head, or another request if it has one."""

    BODY = "body"
    HEAD = "head"
    REQUEST = "request"


class SlowClient:
    """How long one client has not sent what is due, and has not read what waits for it."""

    def __init__(self, limits: Limits) -> None:
        self._longest = {
            Due.BODY: limits.body_seconds,
            Due.HEAD: limits.head_seconds,
            Due.REQUEST: limits.idle_seconds,
        }
        self._limits = limits
        self._waited_for: tuple[object, Due] | None = None
        self._waited_seconds = 0.0
        self._unread_bytes = 0
        self._unread_seconds = 0.0

    def overdue(self, waits_for: tuple[object, Due] | None, elapsed_seconds: float) -> Due | None:
        """Return what the client has taken too long to send, or None.

        `waits_for` is the last request and the data that is due after it, None if we do not wait for the client.
        """
        if waits_for is None or waits_for != self._waited_for:
            self._waited_for = waits_for
            self._waited_seconds = 0.0
            return None
        self._waited_seconds += elapsed_seconds
        due = waits_for[1]
        return due if self._waited_seconds >= self._longest[due] else None

    def reads_nothing(self, unread_bytes: int, elapsed_seconds: float) -> bool:
        """Return whether the client has read nothing of a full buffer for too long."""
        self._unread_seconds = self._unread_seconds + elapsed_seconds if unread_bytes == self._unread_bytes else 0.0
        self._unread_bytes = unread_bytes
        return self._unread_seconds >= self._limits.unread_seconds


class WaitingBytes:
    """Limits the bytes that wait for slow clients, on all connections together.

    Above the limit, the connections that have waited longest are cut off first, with `cut_off`. The newest one stays,
    so that a response larger than the limit can still be sent.
    """

    def __init__(self, max_bytes: int, cut_off: Callable[[Any], None]) -> None:
        self._max_bytes = max_bytes
        self._cut_off = cut_off
        self._waiting: dict[Any, int] = {}  # the longest wait first
        self._total_bytes = 0

    def add(self, connection: Any, size_bytes: int) -> None:
        """Count all bytes that wait on a connection now, and make room for them."""
        self._total_bytes += size_bytes - self._waiting.get(connection, 0)
        self._waiting[connection] = size_bytes
        while self._total_bytes > self._max_bytes and len(self._waiting) > 1:
            oldest = next(iter(self._waiting))
            self.remove(oldest)
            self._cut_off(oldest)

    def remove(self, connection: Any) -> None:
        """Stop counting a connection: nothing waits any more, or its client is gone."""
        self._total_bytes -= self._waiting.pop(connection, 0)


class Standstills:
    """Standstills of the process: it was frozen, or its event loop was blocked.

    A request that is read at a time after `fresh_until`, on the clock of the event loop, may have waited through one.
    """

    def __init__(self) -> None:
        self.fresh_until = float("inf")
        self._ticked_at = float("inf")
        self._settled_at = float("-inf")

    def tick(self, now: float) -> None:
        """Record that the event loop runs. Call this much more often than every `STANDSTILL_SECONDS`."""
        if now - self._ticked_at > STANDSTILL_SECONDS:
            self._settled_at = now + RECENT_SECONDS
        self._ticked_at = now
        self.fresh_until = now + STANDSTILL_SECONDS if now >= self._settled_at else float("-inf")


class Sweeper:
    """Checks all open connections every second while the server runs."""

    def __init__(self, connections: Iterable[Any], loop: asyncio.AbstractEventLoop) -> None:
        self._connections = connections
        self._loop = loop
        self._looked_at = loop.time()
        self._timer = loop.call_later(SWEEP_SECONDS, self._sweep)

    def stop(self) -> None:
        """Stop checking."""
        self._timer.cancel()

    def _sweep(self) -> None:
        now = self._loop.time()
        elapsed = min(now - self._looked_at, LONGEST_STEP_SECONDS)
        self._looked_at = now
        self._timer = self._loop.call_later(SWEEP_SECONDS, self._sweep)
        for connection in list(self._connections):
            connection.check_progress(elapsed)
