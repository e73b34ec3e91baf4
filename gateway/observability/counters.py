"""Metrics that cost next to nothing to count, for what happens on every request.

`prometheus_client`'s own take a lock each time, since any thread may count. These are counted by one thread alone,
that of the event loop; the thread that serves them only reads.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector


class Count:
    """One counter. Whoever counts adds to `value`.

    Attributes:
        value: what has been counted.
    """

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Counts(Collector):
    """A family of counters.

    Args:
        name: of the metric, without `_total`.
        documentation: of the metric.
        labels: the names of its labels.
        registry: where it is shown.
    """

    def __init__(self, name: str, documentation: str, labels: Sequence[str], registry: CollectorRegistry) -> None:
        self._about = name, documentation
        self._labels = labels
        self._counts: dict[tuple[str, ...], Count] = {}
        registry.register(self)

    def labels(self, *values: str) -> Count:
        """Return the counter with these labels; keep it, for it costs more to find than to count."""
        return self._counts.setdefault(values, Count())

    def show(self, count: Count, *values: str) -> None:
        """Show what somebody else counts, with these labels."""
        self._counts[values] = count

    def describe(self) -> list[CounterMetricFamily]:
        """Return the metric without its values."""
        return [CounterMetricFamily(*self._about, labels=self._labels)]

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Return the metric as it is now."""
        (family,) = self.describe()
        for values, count in list(self._counts.items()):
            family.add_metric(values, count.value)
        yield family


class ReadCount(Collector):
    """A counter that somebody else counts.

    Args:
        name: of the metric, without `_total`.
        documentation: of the metric.
        read: returns what has been counted; called on the thread that serves metrics.
        registry: where it is shown.
    """

    def __init__(self, name: str, documentation: str, read: Callable[[], int], registry: CollectorRegistry) -> None:
        self._about = name, documentation
        self._read = read
        registry.register(self)

    def describe(self) -> list[CounterMetricFamily]:
        """Return the metric without its value."""
        return [CounterMetricFamily(*self._about)]

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Return the metric as it is now."""
        yield CounterMetricFamily(*self._about, value=self._read())


class Distribution:
    """One histogram.

    Args:
        bounds: the upper bounds of its buckets, rising; the last one is infinity.
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
    """A family of histograms.

    Args:
        name: of the metric.
        documentation: of the metric.
        labels: the names of its labels.
        bounds: the upper bounds of its buckets, rising, without infinity.
        registry: where it is shown.
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
        """Return the histogram with these labels; keep it, for it costs more to find than to count."""
        return self._distributions.setdefault(values, Distribution(self._bounds))

    def describe(self) -> list[HistogramMetricFamily]:
        """Return the metric without its values."""
        return [HistogramMetricFamily(*self._about, labels=self._labels)]

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Return the metric as it is now."""
        (family,) = self.describe()
        for values, distribution in list(self._distributions.items()):
            so_far, buckets = 0, []
            for name, count in zip(self._names, tuple(distribution.counts), strict=True):
                so_far += count
                buckets.append((name, so_far))
            family.add_metric(values, buckets, distribution.total)
        yield family
