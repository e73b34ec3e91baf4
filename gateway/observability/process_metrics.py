"""The metrics that every process of the gateway has, whether it serves requests or runs tasks."""

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
"""The value of a label for whatever is not known beforehand."""


class RedisErrorKind(StrEnum):
    """Why a command to Redis failed."""

    CONNECTION = "connection"
    TIMEOUT = "timeout"
    FULL = "full"
    OTHER = OTHER


class KeyCounter:
    """Counts by the id of a seal key. There are as many ids as operators have made keys.

    Args:
        name: of the metric.
        documentation: of the metric.
        registry: where it is shown.
    """

    def __init__(self, name: str, documentation: str, registry: CollectorRegistry) -> None:
        self._counter = Counts(name, documentation, ["key_id"], registry)
        # Bound once: looking a child up by its labels costs more than counting.
        self._children: dict[bytes, Count] = {}

    def count(self, key_id: bytes) -> None:
        """Count one more for a key."""
        (self._children.get(key_id) or self.show(key_id)).value += 1

    def show(self, key_id: bytes) -> Count:
        """Show a key from now on, if only with nothing counted."""
        child = self._children.get(key_id)
        if child is None:
            child = self._children[key_id] = self._counter.labels(key_id.hex())
        return child


class ProcessTelemetry:
    """What replicas and workers count alike.

    Attributes:
        registry: what `gateway.observability.metrics_server.start_metrics_server` serves.
        audit_lines_lost: returns how many lines of the audit log were not written.
        clocks: compares this process's clock with others.
    """

    def __init__(self) -> None:
        self.audit_lines_lost: Callable[[], int] = int
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.clocks = ClockWatch()
        self.registry.register(self.clocks)
        self._build = Gauge(
            "gateway_build_info", "What runs; always 1.", ["version", "compiled"], registry=self.registry
        )
        self._seal_keys = Gauge(
            "gateway_seal_keys", "The seal keys in use, by what they do.", ["key_id", "role"], registry=self.registry
        )
        self._by_key: list[KeyCounter] = []
        self._fields_sealed = self.count_by_key(
            "gateway_task_fields_sealed", "Fields of tasks sealed to rest in Redis, by key id."
        )
        self._fields_opened = self.count_by_key(
            "gateway_task_fields_opened", "Fields of tasks that rested in Redis and were opened, by key id."
        )
        fields = Counter(
            "gateway_task_field_rejections",
            "Fields of tasks that rested in Redis and did not open, by reason.",
            ["reason"],
            registry=self.registry,
        )
        self._field_rejections = {reason: fields.labels(reason) for reason in RejectReason}
        redis_errors = Counter(
            "gateway_redis_errors", "Commands to Redis that failed, by kind.", ["kind"], registry=self.registry
        )
        ReadCount(
            "gateway_audit_lines_lost",
            "Lines of the audit log that were not written.",
            self._audit_lines_lost,
            self.registry,
        )
        ReadCount("gateway_log_lines_lost", "Lines of the log that were not written.", log_lines_lost, self.registry)
        self._redis_errors = {kind: redis_errors.labels(kind) for kind in RedisErrorKind}

    def _audit_lines_lost(self) -> int:
        return self.audit_lines_lost()

    def build_info(self, version: str, *, compiled: bool) -> None:
        """Tell which version of the gateway this is, and whether its hot path is compiled."""
        self._build.labels(version, str(compiled).lower()).set(1)

    def count_by_key(self, name: str, documentation: str) -> KeyCounter:
        """Add a counter by key id, which shows every key that `seal_keys` tells of from the start."""
        counter = KeyCounter(name, documentation, self.registry)
        self._by_key.append(counter)
        return counter

    def seal_keys(self, key_ids: Sequence[str]) -> None:
        """Tell which keys are in use now; the first seals, the others only open."""
        self._seal_keys.clear()
        for position, key_id in enumerate(key_ids):
            self._seal_keys.labels(key_id, "opens" if position else "seals").set(1)
            for counter in self._by_key:
                counter.show(bytes.fromhex(key_id))

    def field_sealed(self, key_id: bytes) -> None:
        """Count a field of a task that was sealed with one of our keys."""
        self._fields_sealed.count(key_id)

    def field_opened(self, key_id: bytes) -> None:
        """Count a field of a task that opened with one of our keys."""
        self._fields_opened.count(key_id)

    def field_rejected(self, reason: RejectReason) -> None:
        """Count a field of a task that did not open: its key is not held, or somebody changed it."""
        self._field_rejections[reason].inc()

    def redis_failed(self, kind: RedisErrorKind) -> None:
        """Count a command to Redis that failed."""
        self._redis_errors[kind].inc()
