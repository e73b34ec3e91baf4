"""Pure: simulates the replicas of a deployment as planned, with a zone lost, and overloaded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import Final

from gateway.sizing.model import Deployment
from gateway.sizing.simulation import Replicas, Simulated, SimulatedLeg, poisson, simulate

MOST_SIMULATED: Final = 6
"""The largest number of replicas to simulate. More replicas get calls more evenly, so this errs on the safe side."""

TARGET_SECONDS: Final = 0.05
"""The default of `GATEWAY_QUEUE_TARGET_MS`."""

_LEGS: Final = 30_000
"""The average number of legs to count. How many seconds that takes depends on the load."""

_SEED: Final = 1
_OVERLOAD: Final = 1.5
_SETTLING: Final = 4
"""How many times the longest duration of a leg to wait before counting. Then places and queues are at their fullest."""


@dataclass(frozen=True)
class Outlook:
    """The simulation of one situation.

    Attributes:
        utilization: the share of the replicas' cores that the legs need.
        settling_seconds: how long the load lasts before counting starts.
        counted_seconds: how long arriving calls are counted.
    """

    situation: str
    utilization: float
    settling_seconds: float
    counted_seconds: float
    result: Simulated


def outlooks(deployment: Deployment) -> list[Outlook]:
    """Simulate the situations that a deployment is sized for, and an overload."""
    replicas = deployment.replicas
    situations = {"all replicas up": replicas.utilization}
    if replicas.lost_utilization is not None:
        situations["a zone lost"] = replicas.lost_utilization
    situations["50% more than all replicas can serve"] = _OVERLOAD * _full_utilization(deployment)
    return [_simulate(deployment, situation, share) for situation, share in situations.items() if share > 0]


def _full_utilization(deployment: Deployment) -> float:
    """Return the highest utilization of the cores. It is below 1 if legs wait so much that places run out."""
    seconds = deployment.leg_cpu_seconds + deployment.demand.tool_wait_seconds
    return min(1.0, _places(deployment) / seconds * deployment.leg_cpu_seconds)


def _places(deployment: Deployment) -> int:
    """Return the limit of a replica. The adaptive limit settles near what the core can serve within the target."""
    places = math.ceil(deployment.capacity * (TARGET_SECONDS + deployment.demand.tool_wait_seconds))
    return max(1, min(deployment.policy.max_inflight, places))


def _simulate(deployment: Deployment, situation: str, utilization: float) -> Outlook:
    """Simulate some of the replicas, each with this utilization.

    The gateway's own time is the same for each leg. The tool's time is assumed to be exponentially distributed.
    """
    random = Random(_SEED)  # noqa: S311 - a simulation, not a secret
    demand = deployment.demand
    count = min(MOST_SIMULATED, deployment.replicas.count)
    tool = min(demand.tool_cpu_seconds, deployment.leg_cpu_seconds)
    gateway = deployment.leg_cpu_seconds - tool
    rate = utilization * count / deployment.leg_cpu_seconds
    leg_seconds = deployment.leg_cpu_seconds + demand.tool_wait_seconds
    settling = _SETTLING * (TARGET_SECONDS + leg_seconds)
    # Legs that start together end together, so the load comes in waves. Count only whole waves.
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
