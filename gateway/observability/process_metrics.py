"""The metrics that replicas and workers share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

from gateway.errors import RejectReason
from gateway.observability.clock_watch import ClockWatch
from gateway.observability.counters import Count, Counts, ReadCount
from gateway.observability.logs import log_lines_lost

OTHER: Final = "other"
"""The value of a label for everything outside its fixed set."""


class RedisErrorKind(StrEnum):
    """Why a command to Redis failed."""

    CONNECTION = "connection"
    TIMEOUT = "timeout"
    FULL = "full"
    OTHER = OTHER


class KeyCounter:
    """A counter with the id of a seal key as its label. There are as many ids as operators have made keys."""

    def __init__(self, name: str, documentation: str, registry: CollectorRegistry) -> None:
        self._counter = Counts(name, documentation, ["key_id"], registry)
        # Bind the children once: looking one up by its labels costs more than counting.
        self._children: dict[bytes, Count] = {}

    def count(self, key_id: bytes) -> None:
        """Add one for a key."""
        (self._children.get(key_id) or self.show(key_id)).value += 1

    def show(self, key_id: bytes) -> Count:
        """Show a key from now on, even if nothing was counted for it."""
        child = self._children.get(key_id)
        if child is None:
            child = self._children[key_id] = self._counter.labels(key_id.hex())
        return child


class ProcessTelemetry:
    """The metrics of one process.

    `audit_lines_lost` returns how many lines of the audit log were not written.
    """

    def __init__(self) -> None:
        self.audit_lines_lost: Callable[[], int] = int
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.clocks = ClockWatch()
        self.registry.register(self.clocks)
        self._build = Gauge(
            "gateway_build_info", "The running version; always 1.", ["version", "compiled"], registry=self.registry
        )
        self._seal_keys = Gauge(
            "gateway_seal_keys", "The seal keys in use, by role.", ["key_id", "role"], registry=self.registry
        )
        self._by_key: list[KeyCounter] = []
        self._fields_sealed = self.count_by_key(
            "gateway_task_fields_sealed", "Fields of tasks sealed for Redis, by key id."
        )
        self._fields_opened = self.count_by_key(
            "gateway_task_fields_opened", "Fields of tasks from Redis that opened, by key id."
        )
        fields = Counter(
            "gateway_task_field_rejections",
            "Fields of tasks from Redis that did not open, by reason.",
            ["reason"],
            registry=self.registry,
        )
        self._field_rejections = {reason: fields.labels(reason) for reason in RejectReason}
        redis_errors = Counter(
            "gateway_redis_errors", "Redis commands that failed, by kind.", ["kind"], registry=self.registry
        )
        ReadCount(
            "gateway_audit_lines_lost",
            "Audit log lines that were not written.",
            self._audit_lines_lost,
            self.registry,
        )
        ReadCount("gateway_log_lines_lost", "Log lines that were not written.", log_lines_lost, self.registry)
        self._redis_errors = {kind: redis_errors.labels(kind) for kind in RedisErrorKind}

    def _audit_lines_lost(self) -> int:
        return self.audit_lines_lost()

    def build_info(self, version: str, *, compiled: bool) -> None:
        """Show the version of the gateway, and whether its hot path is compiled."""
        self._build.labels(version, str(compiled).lower()).set(1)

    def count_by_key(self, name: str, documentation: str) -> KeyCounter:
        """Add a counter by key id. It shows the keys given to `seal_keys` even before anything is counted."""
        counter = KeyCounter(name, documentation, self.registry)
        self._by_key.append(counter)
        return counter

    def seal_keys(self, key_ids: Sequence[str]) -> None:
        """Show which keys are in use now. The first one seals, the others only open."""
        self._seal_keys.clear()
        for position, key_id in enumerate(key_ids):
            self._seal_keys.labels(key_id, "opens" if position else "seals").set(1)
            for counter in self._by_key:
                counter.show(bytes.fromhex(key_id))

    def field_sealed(self, key_id: bytes) -> None:
        """Count a field of a task that was sealed."""
        self._fields_sealed.count(key_id)

    def field_opened(self, key_id: bytes) -> None:
        """Count a field of a task that opened."""
        self._fields_opened.count(key_id)

    def field_rejected(self, reason: RejectReason) -> None:
        """Count a field of a task that did not open: its key is missing here, or the field was changed."""
        self._field_rejections[reason].inc()

    def redis_failed(self, kind: RedisErrorKind) -> None:
        """Count a Redis command that failed."""
        self._redis_errors[kind].inc()
