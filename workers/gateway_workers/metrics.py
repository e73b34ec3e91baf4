"""The metrics of a worker."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from prometheus_client import Counter, Histogram

from gateway.observability.process_metrics import OTHER, ProcessTelemetry

_SECONDS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)


class LegEnd(StrEnum):
    """How a leg of a task ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    WAITING = "waiting"
    HANDED_BACK = "handed_back"
    CANCELLED = "cancelled"
    LOST = "lost"
    EXPIRED = "expired"


class WorkerTelemetry(ProcessTelemetry):
    """The metrics of one worker. Tools other than the registered `tools` count as `other`."""

    def __init__(self, tools: Iterable[str], concurrency: int) -> None:
        super().__init__()
        self._tools = frozenset(tools)
        self._legs = Counter(
            "gateway_task_legs", "Legs of tasks, by outcome.", ["tool", "outcome"], registry=self.registry
        )
        self._seconds = Histogram(
            "gateway_task_leg_seconds",
            "Duration of legs of tasks.",
            ["tool"],
            buckets=_SECONDS_BUCKETS,
            registry=self.registry,
        )
        self._running = self.gauge("gateway_tasks_running", "Tasks running now.")
        self.gauge("gateway_worker_concurrency", "How many tasks may run at once.").set(concurrency)
        self._redelivered = self.counter("gateway_tasks_redelivered", "Tasks taken over from a lost worker.")
        self._put_back = self.counter(
            "gateway_tasks_put_back",
            "Tasks put behind those of other callers because their caller already had its share of this worker.",
        )
        self._leases_lost = self.counter(
            "gateway_task_leases_lost", "Tasks that this worker gave up because it lost their lease."
        )

    def serve(self, tools: Iterable[str]) -> None:
        """Count these tools by name from now on. Counts of others are forgotten."""
        before, self._tools = self._tools, frozenset(tools)
        for name in before - self._tools:
            self._legs.remove_by_labels({"tool": name})
            self._seconds.remove_by_labels({"tool": name})

    def tasks_put_back(self, count: int) -> None:
        """Count tasks that did not start because their owner has its share of this worker."""
        if count:
            self._put_back.inc(count)

    def leg_started(self, attempt: int) -> None:
        """Count a task as running; `attempt` is above 1 if a worker was lost while it ran the task."""
        self._running.inc()
        if attempt > 1:
            self._redelivered.inc()

    def leg_ended(self, tool: str, end: LegEnd, seconds: float) -> None:
        """Count the end of a leg that `leg_started` counted."""
        self._running.dec()
        name = tool if tool in self._tools else OTHER
        self._legs.labels(name, end.value).inc()
        self._seconds.labels(name).observe(seconds)
        if end is LegEnd.LOST:
            self._leases_lost.inc()
