"""The metrics that replicas and workers share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Metric, ProcessCollector
from typing_extensions import override

from gateway.errors import RejectReason
from gateway.observability.clock_watch import ClockWatch
from gateway.observability.counters import Count, Counts, ReadCount
from gateway.observability.logs import log_lines_lost
from gateway.observability.redis_watch import RedisWatch

OTHER: Final = "other"
"""The value of a label for everything outside its fixed set."""


_Key = TypeVar("_Key")
_Value = TypeVar("_Value", bound=StrEnum)


class RedisErrorKind(StrEnum):
    """Why a command to Redis failed."""

    CONNECTION = "connection"
    TIMEOUT = "timeout"
    FULL = "full"
    OTHER = OTHER


class StreamEnd(StrEnum):
    """How a request for a stream of another process ended."""

    ANSWERED = "answered"
    REFUSED = "refused"
    LOST = "lost"
    LEFT = "left"
    """This process did not read it to its end."""


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


class _WithoutStarts(CollectorRegistry):
    """Leaves out the time when each counter started, which the library adds: it is that of the process.

    The library's own switch is for a whole process, so it would change the metrics of an application around us.
    """

    @override
    def collect(self) -> Iterator[Metric]:
        for metric in super().collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class ProcessTelemetry:
    """The metrics of one process.

    `audit_lines_lost` returns how many lines of the audit log were not written.
    """

    def __init__(self) -> None:
        self.audit_lines_lost: Callable[[], int] = int
        self.registry = _WithoutStarts()
        ProcessCollector(registry=self.registry)
        self.clocks = ClockWatch()
        self.registry.register(self.clocks)
        self._build = self.gauge("gateway_build_info", "The running version; always 1.", "version", "compiled")
        self._seal_keys = self.gauge("gateway_seal_keys", "The seal keys in use, by role.", "key_id", "role")
        self._by_key: list[KeyCounter] = []
        self.field_sealed = self.count_by_key(
            "gateway_task_fields_sealed", "Fields of tasks sealed for Redis, by key id."
        ).count
        self.field_opened = self.count_by_key(
            "gateway_task_fields_opened", "Fields of tasks from Redis that opened, by key id."
        ).count
        self.field_rejected = self.count_each(
            "gateway_task_field_rejections", "Fields of tasks from Redis that did not open, by reason.", RejectReason
        )
        self.redis_failed = self.count_each(
            "gateway_redis_errors", "Redis commands that failed, by kind.", RedisErrorKind, label="kind"
        )
        self.stream_sent = self.count_each(
            "gateway_hop_streams_sent",
            "Requests to another process that is to answer with a stream, by how it ended.",
            StreamEnd,
            label="result",
        )
        self.redis_watch = RedisWatch(
            self.gauge("gateway_redis_at_risk", "Whether Redis may lose tasks, by the way in which it may.", "risk")
        )
        lost = "gateway_audit_lines_lost", "Audit log lines that were not written."
        ReadCount(*lost, self._audit_lines_lost, self.registry)
        ReadCount("gateway_log_lines_lost", "Log lines that were not written.", log_lines_lost, self.registry)

    def gauge(self, name: str, documentation: str, *labels: str) -> Gauge:
        """Add a gauge."""
        return Gauge(name, documentation, labels, registry=self.registry)

    def counter(self, name: str, documentation: str) -> Counter:
        """Add a counter without labels. Its name comes without `_total`, as for all counters."""
        return Counter(name, documentation, registry=self.registry)

    def count_by(self, name: str, documentation: str, label: str, values: Mapping[_Key, str]) -> dict[_Key, Counter]:
        """Add a counter with one label, and return its children: finding one by its label costs more than counting."""
        counter = Counter(name, documentation, [label], registry=self.registry)
        return {key: counter.labels(value) for key, value in values.items()}

    def count_each(
        self, name: str, documentation: str, values: Iterable[_Value], *, label: str = "reason"
    ) -> Callable[[_Value], None]:
        """Add a counter with one label that has these values, and return the function that counts one of them."""
        children = self.count_by(name, documentation, label, {value: value.value for value in values})

        def count(value: _Value) -> None:
            children[value].inc()

        return count

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
