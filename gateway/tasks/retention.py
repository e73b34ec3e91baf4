"""Pure: how long a task is kept, and how often clients should poll it."""

from __future__ import annotations

from gateway.tasks.model import Retention

_POLL_FIRST_MS = 500
_POLL_LAST_MS = 10_000
_POLL_SHARE = 10


def expires_ms(retention: Retention, created_ms: int, ended_ms: int | None, max_ttl_ms: int) -> int:
    """Return when a task expires, as things are now.

    Retention that counts from the end applies once the task has ended; until then it may live for the maximum. The
    retention is capped at `max_ttl_ms`.
    """
    kept = min(retention.ms, max_ttl_ms)
    if retention.counts_from == "created":
        return created_ms + kept
    return created_ms + max_ttl_ms if ended_ms is None else ended_ms + kept


def poll_interval_ms(age_ms: int) -> int:
    """Return how long a client should wait before it polls a task again: a tenth of its age, from 0.5 s to 10 s."""
    return max(_POLL_FIRST_MS, min(age_ms // _POLL_SHARE, _POLL_LAST_MS))
