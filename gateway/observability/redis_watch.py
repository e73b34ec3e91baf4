"""Watches whether Redis may lose tasks by the way it is configured, which anybody can change while it runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

from prometheus_client import Gauge

log = logging.getLogger(__name__)

KEEPS_ALL: Final = "noeviction"


class RedisRisk(StrEnum):
    """A way to lose tasks."""

    EVICTION = "eviction"
    PERSISTENCE = "persistence"


_MESSAGES: Final[Mapping[RedisRisk, tuple[str, str]]] = {
    RedisRisk.EVICTION: ("task store may evict tasks", "task store evicts no tasks any more"),
    RedisRisk.PERSISTENCE: ("task store keeps no append-only file", "task store keeps an append-only file again"),
}


class RedisWatch:
    """Reports each risk when it appears and when it is over, in the log and as a metric. Any thread may call it."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._known: frozenset[RedisRisk] = frozenset()
        self._lock = threading.Lock()

    def see(self, infos: Iterable[Mapping[str, Any]]) -> None:
        """Take what each primary server reports about itself."""
        risks = frozenset(risk for info in infos for risk in risks_of(info))
        with self._lock:
            before, self._known = self._known, risks
        for risk, (appears, ends) in _MESSAGES.items():
            self._gauge.labels(risk.value).set(risk in risks)
            if risk in risks - before:
                log.warning(appears)
            elif risk in before - risks:
                log.warning(ends)


def risks_of(info: Mapping[str, Any]) -> list[RedisRisk]:
    """Return the risks of one server.

    A server without a TCP port, such as that of `gateway dev`, lives with its machine's processes, so it need not keep
    anything.
    """
    risks = []
    if info.get("maxmemory_policy", KEEPS_ALL) != KEEPS_ALL:
        risks.append(RedisRisk.EVICTION)
    if not info.get("aof_enabled", 1) and info.get("tcp_port"):
        risks.append(RedisRisk.PERSISTENCE)
    return risks
