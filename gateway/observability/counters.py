"""Cheap metrics, for events that happen on every request.

The metrics of `prometheus_client` take a lock each time, since any thread may count. These are counted only by the
event loop's thread; the thread that serves metrics just reads them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector


class Count:
    """One counter. To count, add to `value`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Counts(Collector):
    """A counter with labels. Its name comes without `_total`."""

    def __init__(self, name: str, documentation: str, labels: Sequence[str], registry: CollectorRegistry) -> None:
        self._about = name, documentation
        self._labels = labels
        self._counts: dict[tuple[str, ...], Count] = {}
        registry.register(self)

    def labels(self, *values: str) -> Count:
        """Return the counter with these labels. Keep it: finding it costs more than counting."""
        return self._counts.setdefault(values, Count())

    def remove(self, *values: str) -> None:
        """Forget the counter with these labels, if there is one."""
        self._counts.pop(values, None)

    def show(self, count: Count, *values: str) -> None:
        """Show an existing counter with these labels."""
        self._counts[values] = count

    def describe(self) -> list[CounterMetricFamily]:
        """Return the metric without its values."""
        return [CounterMetricFamily(*self._about, labels=self._labels)]

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the metric with its current values."""
        (family,) = self.describe()
        for values, count in list(self._counts.items()):
            family.add_metric(values, count.value)
        yield family


class ReadCount(Collector):
    """A counter whose value is read from elsewhere.

    `name` lacks `_total`. `read` is called on the thread that serves metrics.
    """

    def __init__(self, name: str, documentation: str, read: Callable[[], int], registry: CollectorRegistry) -> None:
        self._about = name, documentation
        self._read = read
        registry.register(self)

    def describe(self) -> list[CounterMetricFamily]:
        """Return the metric without its value."""
        return [CounterMetricFamily(*self._about)]

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the metric with its current value."""
        yield CounterMetricFamily(*self._about, value=self._read())


class Distribution:
    """One histogram.

    `bounds` are the upper bounds of its buckets, ascending; the last one is infinity.
    """

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * len(bounds)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value


class Distributions(Collector):
    """A histogram with labels.

    `bounds` are the upper bounds of its buckets, ascending, without infinity.
    """

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str],
        *,
        bounds: Sequence[float],
        registry: CollectorRegistry,
    ) -> None:
        self._about = name, documentation
        self._labels = labels
        self._bounds = (*map(float, bounds), float("inf"))
        self._names = (*map(str, self._bounds[:-1]), "+Inf")
        self._distributions: dict[tuple[str, ...], Distribution] = {}
        registry.register(self)

    def labels(self, *values: str) -> Distribution:
        """Return the histogram with these labels. Keep it: finding it costs more than counting."""
        return self._distributions.setdefault(values, Distribution(self._bounds))

    def remove(self, *values: str) -> None:
        """Forget the histogram with these labels, if there is one."""
        self._distributions.pop(values, None)

    def describe(self) -> list[HistogramMetricFamily]:
        """Return the metric without its values."""
        return [HistogramMetricFamily(*self._about, labels=self._labels)]

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Yield the metric with its current values."""
        (family,) = self.describe()
        for values, distribution in list(self._distributions.items()):
            so_far, buckets = 0, []
            for name, count in zip(self._names, tuple(distribution.counts), strict=True):
                so_far += count
                buckets.append((name, so_far))
            family.add_metric(values, buckets, distribution.total)
        yield family
