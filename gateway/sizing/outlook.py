"""Pure: how the replicas of a deployment would fare, by simulation: as planned, with a zone lost, with too little."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import Final

from gateway.sizing.model import Deployment
from gateway.sizing.simulation import Replicas, Simulated, SimulatedLeg, poisson, simulate

MOST_SIMULATED: Final = 6
"""Replicas at most. More of them get calls in steadier turns, so this is on the safe side."""

TARGET_SECONDS: Final = 0.05
"""What `GATEWAY_QUEUE_TARGET_MS` is unless set."""

_LEGS: Final = 30_000
"""So many legs are counted at least, on average; how many seconds those are depends on the load."""

_SEED: Final = 1
_OVERLOAD: Final = 1.5
_SETTLING: Final = 4
"""After so many times what a leg may take at most, places and waiting rooms are as full as they will ever be."""


@dataclass(frozen=True)
class Outlook:
    """One situation.

    Attributes:
        situation: what it is, for people.
        utilization: share of their cores that the legs would need.
        settling_seconds: how long the load lasts before anything is counted.
        counted_seconds: how long everything that arrives is counted.
        result: what comes out.
    """

    situation: str
    utilization: float
    settling_seconds: float
    counted_seconds: float
    result: Simulated


def outlooks(deployment: Deployment) -> list[Outlook]:
    """Simulate the situations that a deployment is sized for, and one that it is not."""
    replicas = deployment.replicas
    situations = {"all replicas there": replicas.utilization}
    if replicas.lost_utilization is not None:
        situations["a zone lost"] = replicas.lost_utilization
    situations["half as much again as all can do"] = _OVERLOAD * _full_utilization(deployment)
    return [_simulate(deployment, situation, share) for situation, share in situations.items() if share > 0]


def _full_utilization(deployment: Deployment) -> float:
    """Return how busy the cores are when replicas do all they can: less than 1 if legs wait and places run out."""
    seconds = deployment.leg_cpu_seconds + deployment.demand.tool_wait_seconds
    return min(1.0, _places(deployment) / seconds * deployment.leg_cpu_seconds)


def _places(deployment: Deployment) -> int:
    """Return the limit of a replica: one that finds itself rests near what the core gets through within the target."""
    places = math.ceil(deployment.capacity * (TARGET_SECONDS + deployment.demand.tool_wait_seconds))
    return max(1, min(deployment.policy.max_inflight, places))


def _simulate(deployment: Deployment, situation: str, utilization: float) -> Outlook:
    """Simulate some of the replicas, each of them that busy.

    The gateway's own time is the same for each leg; the tool's is taken to vary as an exponential distribution does.
    """
    random = Random(_SEED)  # noqa: S311 - a simulation, not a secret
    demand = deployment.demand
    count = min(MOST_SIMULATED, deployment.replicas.count)
    tool = min(demand.tool_cpu_seconds, deployment.leg_cpu_seconds)
    gateway = deployment.leg_cpu_seconds - tool
    rate = utilization * count / deployment.leg_cpu_seconds
    leg_seconds = deployment.leg_cpu_seconds + demand.tool_wait_seconds
    settling = _SETTLING * (TARGET_SECONDS + leg_seconds)
    # Legs that began together end together: what is taken on comes and goes in turns, of which only whole ones count.
    counted = math.ceil(_LEGS / rate / leg_seconds) * leg_seconds

    def leg() -> SimulatedLeg:
        return SimulatedLeg(gateway + (random.expovariate(1 / tool) if tool else 0.0), demand.tool_wait_seconds)

    result = simulate(
        poisson(rate, settling + counted, random),
        leg,
        Replicas(count, _places(deployment)),
        counted_from=settling,
    )
    return Outlook(situation, utilization, settling, counted, result)
