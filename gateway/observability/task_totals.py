"""How many tasks of the whole deployment are in each phase. Every process shows the same numbers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gateway.errors import TaskStoreDown
from gateway.runtime.background import task_running
from gateway.runtime.jitter import varied
from gateway.tasks.model import Phase

PERIOD_SECONDS: Final = 10.0
"""The longest time between two counts. It varies, so processes that start together do not count together."""

STALE_SECONDS: Final = 3 * PERIOD_SECONDS
"""The age from which a count is not shown any more."""

Read = Callable[[], Awaitable[Mapping[Phase, int]]]
"""Counts the tasks of all owners by phase; raises `TaskStoreDown`."""


class TaskTotals(Collector):
    """Counts tasks in the background and shows the last count, unless it failed or is stale."""

    def __init__(self, read: Read, clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._clock = clock
        self._counted: Mapping[Phase, int] = {}
        self._counted_at = 0.0

    @contextlib.asynccontextmanager
    async def running(self, registry: CollectorRegistry) -> AsyncIterator[None]:
        """Count while the context is open, and show the count in a registry."""
        registry.register(self)
        try:
            async with task_running(self._count_for_ever()):
                yield
        finally:
            registry.unregister(self)

    async def look(self) -> None:
        """Count once."""
        try:
            self._counted = await self._read()
        except TaskStoreDown:
            self._counted = {}
        self._counted_at = self._clock()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the last count; called by the thread that serves metrics."""
        (totals,) = self.describe()
        if self._clock() - self._counted_at < STALE_SECONDS:
            for phase, count in self._counted.items():
                totals.add_metric([phase.value], count)
        yield totals

    def describe(self) -> list[GaugeMetricFamily]:
        """Return the metric without its values."""
        return [GaugeMetricFamily("gateway_tasks", "Tasks stored in the whole deployment, by phase.", labels=["phase"])]

    async def _count_for_ever(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(varied(PERIOD_SECONDS, 0.8))
