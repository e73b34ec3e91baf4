"""Pure: how the replicas of a deployment would fare, by simulation: as planned, with a zone lost, with too little."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import Final

from loadtest.sizing.model import Deployment
from loadtest.sizing.simulation import Leg, Replicas, Simulated, poisson, simulate

MOST_SIMULATED: Final = 6
"""Replicas at most. More of them get calls in steadier turns, so this is on the safe side."""

TARGET_SECONDS: Final = 0.05
"""What `GATEWAY_QUEUE_TARGET_MS` is unless set."""

_LEGS: Final = 30_000
_SEED: Final = 1
_OVERLOAD: Final = 1.5


@dataclass(frozen=True)
class Outlook:
    """One situation.

    Attributes:
        situation: what it is, for people.
        utilization: share of their cores that the legs would need.
        result: what comes out.
    """

    situation: str
    utilization: float
    result: Simulated


def outlooks(deployment: Deployment) -> list[Outlook]:
    """Simulate the situations that a deployment is sized for, and one that it is not."""
    replicas = deployment.replicas
    situations = {"all replicas there": replicas.utilization}
    if replicas.lost_utilization is not None:
        situations["a zone lost"] = replicas.lost_utilization
    situations["half as much again as all can do"] = _OVERLOAD
    return [
        Outlook(situation, share, _simulate(deployment, share)) for situation, share in situations.items() if share > 0
    ]


def _simulate(deployment: Deployment, utilization: float) -> Simulated:
    """Simulate some of the replicas, each of them that busy.

    The gateway's own time is the same for each leg; the tool's is taken to vary as an exponential distribution does.
    """
    random = Random(_SEED)
    demand, policy = deployment.demand, deployment.policy
    count = min(MOST_SIMULATED, deployment.replicas.count)
    tool = min(demand.tool_cpu_seconds, deployment.leg_cpu_seconds)
    gateway = deployment.leg_cpu_seconds - tool
    rate = utilization * count / deployment.leg_cpu_seconds
    # A limit that finds itself comes to rest near what the core gets through within the target.
    places = math.ceil(deployment.capacity * (TARGET_SECONDS + demand.tool_wait_seconds))

    def leg() -> Leg:
        return Leg(gateway + (random.expovariate(1 / tool) if tool else 0.0), demand.tool_wait_seconds)

    return simulate(
        poisson(rate, _LEGS / rate, random),
        leg,
        Replicas(count, max(1, min(policy.max_inflight, places))),
    )
