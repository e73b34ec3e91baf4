"""Compares the simulation with real replicas: the same calls, at the same moments."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from gateway.sizing.percentiles import nearest_rank
from gateway.sizing.simulation import Replicas, Simulated, SimulatedLeg, poisson, simulate
from loadtest.cluster import Cluster
from loadtest.sizing.measure import Caller, Observed, call_at, runnable_seconds
from loadtest.wire import Request, call_tool

SEED: Final = 7
SECONDS: Final = 20.0
REPLICAS: Final = (1, 2)

REFUSED_MAY_DIFFER: Final = 0.08
"""As a share of all calls."""

SECONDS_MAY_DIFFER: Final = 0.15
"""Of the mean, as a share of what was measured."""

_UNLOADED_CALLS: Final = 7
_SETTLE_SECONDS: Final = 1.0


@dataclass(frozen=True)
class Kind:
    """A kind of work for replicas.

    Attributes:
        request: one leg of it.
        limit: how many of them a replica works on at once.
        computes: whether legs need the core, one after the other. Other programs may use it too, so the time that
            legs want it is measured along with the calls. Otherwise legs only wait, at the same time.
        loads: the loads, as multiples of the replicas' capacity.
        counts: whether it counts for the verdict. Legs that compute do not, as nobody knows when other programs use
            the cores.
    """

    name: str
    request: Request
    limit: int
    computes: bool
    loads: tuple[float, ...]
    counts: bool

    def leg(self, seconds: float) -> SimulatedLeg:
        """Return the simulated form of a leg that takes this long on an idle replica."""
        return SimulatedLeg(seconds) if self.computes else SimulatedLeg(0.0, seconds)

    def capacity(self, seconds: float) -> float:
        """Return how many of these legs one replica serves per second."""
        return (1 if self.computes else self.limit) / seconds


KINDS: Final = (
    Kind("waits", call_tool("report", {"city": "Nairobi", "sections": 1}), 6, False, (0.5, 0.9, 1.5), True),
    Kind("computes", call_tool("crunch", {"units": 1, "unitMs": 20}), 16, True, (0.3, 0.6), False),
)


@dataclass(frozen=True)
class Comparison:
    """One load, measured and simulated.

    Attributes:
        load: a multiple of the replicas' capacity.
        measured: the callers' view.
        simulated: the result of the simulation.
    """

    kind: Kind
    replicas: int
    load: float
    measured: Observed
    simulated: Simulated

    @property
    def refused_difference(self) -> float:
        """How much larger the simulated share of refused calls is."""
        return self.simulated.refused_share - self.measured.refused_share

    @property
    def seconds_difference(self) -> float:
        """How much longer calls take on average in the simulation, as a share of what was measured."""
        return self.simulated.mean_seconds / self.measured.mean_seconds - 1

    @property
    def passed(self) -> bool:
        """Whether both are close enough, or do not count."""
        return not self.kind.counts or (
            abs(self.refused_difference) <= REFUSED_MAY_DIFFER and abs(self.seconds_difference) <= SECONDS_MAY_DIFFER
        )

    def row(self) -> str:
        """Return it as a row of the table; see `HEADER`."""
        seen = sorted(self.measured.seconds)
        return (
            f"| {self.kind.name} | {self.replicas} | {self.load:g} |"
            f" {self.measured.refused_share:.1%} | {self.simulated.refused_share:.1%} |"
            f" {1000 * self.measured.mean_seconds:.0f} ms | {1000 * self.simulated.mean_seconds:.0f} ms |"
            f" {1000 * nearest_rank(seen, 0.9):.0f} ms | {1000 * self.simulated.percentile(0.9):.0f} ms |"
            f" {self.seconds_difference:+.1%} |"
        )


HEADER: Final = (
    "| leg | replicas | load | refused, measured | simulated | mean, measured | simulated |"
    " 90th percentile, measured | simulated | mean differs |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


def compare_all(directory: Path, seconds: float, tell: Callable[[str], None]) -> list[Comparison]:
    """Measure and simulate every kind of leg on one and on two replicas.

    Args:
        directory: where the logs of the replicas go.
        seconds: how long calls arrive for each load.
        tell: called with each line of the table.

    Raises:
        ClusterError: replicas do not start, or do not answer as they should.
    """
    tell(HEADER)
    comparisons = []
    for kind in KINDS:
        for replicas in REPLICAS:
            for comparison in compare(kind, replicas, directory / f"{kind.name}-{replicas}", seconds):
                tell(comparison.row())
                comparisons.append(comparison)
    return comparisons


def compare(kind: Kind, replicas: int, directory: Path, seconds: float) -> Iterator[Comparison]:
    """Yield one comparison for each load."""
    environ = {"GATEWAY_MAX_INFLIGHT": str(kind.limit), "GATEWAY_QUEUE_TARGET_MS": "60000"}
    with Cluster(directory, replicas=replicas, environ=environ) as cluster:
        idle_seconds = _idle_seconds(cluster.url, kind.request)
        for load in kind.loads:
            rate = load * replicas * kind.capacity(idle_seconds)
            arrivals = poisson(rate, seconds, Random(SEED))
            before = _runnable_seconds(cluster)
            measured = call_at(cluster.url, kind.request, arrivals)
            busy = _runnable_seconds(cluster) - before
            leg = kind.leg(busy / max(1, len(measured.seconds)) if kind.computes else idle_seconds)
            simulated = simulate(arrivals, itertools.repeat(leg).__next__, Replicas(replicas, kind.limit))
            yield Comparison(kind, replicas, load, measured, simulated)
            time.sleep(_SETTLE_SECONDS)


def _runnable_seconds(cluster: Cluster) -> float:
    return sum(runnable_seconds(replica.pid) for replica in cluster.replicas)


def _idle_seconds(url: str, request: Request) -> float:
    """Return how long a call takes on idle replicas."""
    took = []
    with closing(Caller(url)) as caller:
        for _ in range(_UNLOADED_CALLS):
            began = time.monotonic()
            caller.must(request, "completed")
            took.append(time.monotonic() - began)
    return statistics.median(took)
