"""Pure: from what users do and what a replica can, to a deployment.

Every number is the one for the busiest moment: size for that. Nothing is rounded before the end, and each part says
what decided it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from gateway.sizing.costs import KIB, Costs

_BASE64: Final = 4 / 3


@dataclass(frozen=True)
class Demand:
    """What is asked at the busiest moment.

    Attributes:
        users: how many use it at the same time.
        call_every_seconds: how long after one call a user begins the next one.
        rounds: how often a call asks its user, on average.
        think_seconds: how long a user takes for an answer.
        state_bytes: size of a state, as `state_bytes` in the raw data of a load test.
        request_bytes: size of a request with its headers, without a state.
        response_bytes: likewise of a response.
        tool_cpu_seconds: CPU time of the tool for one leg.
        tool_wait_seconds: how long the tool waits for others in one leg.
        task_share: share of calls that become tasks, which workers run.
        task_seconds: how long the tool of a task runs, all legs together.
        task_cpu_seconds: how much of that it computes.
        task_rounds: how often a task asks its user.
        task_steps: how many steps and emitted blocks a task stores.
        task_polls: how often the client asks what has become of it.
        task_bytes: arguments, steps, answers and result of a task, before encryption.
        task_ttl_seconds: how long a task is kept.
    """

    users: float
    call_every_seconds: float = 60.0
    rounds: float = 1.0
    think_seconds: float = 10.0
    state_bytes: float = 600.0
    request_bytes: float = 1500.0
    response_bytes: float = 1000.0
    tool_cpu_seconds: float = 0.0
    tool_wait_seconds: float = 0.05
    task_share: float = 0.0
    task_seconds: float = 10.0
    task_cpu_seconds: float = 0.01
    task_rounds: float = 0.0
    task_steps: float = 2.0
    task_polls: float = 3.0
    task_bytes: float = 2000.0
    task_ttl_seconds: float = 3600.0

    @property
    def calls_per_second(self) -> float:
        """Calls that begin in a second, tasks included."""
        return self.users / self.call_every_seconds

    @property
    def tasks_per_second(self) -> float:
        """Calls that become tasks."""
        return self.calls_per_second * self.task_share

    @property
    def ephemeral_per_second(self) -> float:
        """Calls that stay in their own requests."""
        return self.calls_per_second - self.tasks_per_second

    @property
    def legs_per_second(self) -> float:
        """Legs of those."""
        return self.ephemeral_per_second * (1 + self.rounds)

    @property
    def task_requests_per_second(self) -> float:
        """Requests that tasks are created, polled and answered with."""
        return self.tasks_per_second * (1 + self.task_polls + self.task_rounds)

    @property
    def requests_per_second(self) -> float:
        """All requests to replicas."""
        return self.legs_per_second + self.task_requests_per_second


@dataclass(frozen=True)
class Policy:
    """How it is to be run.

    Attributes:
        utilization: share of a replica's core that is used at the busiest moment, with everybody there.
        zones: over how many zones replicas and workers are spread; with two or more, one may be lost.
        lost_utilization: the same share while a zone is lost.
        upgrade_share: share of replicas that are away at once during a rolling upgrade; 0 if they are replaced before
            they leave.
        max_inflight: requests that one replica works on at once at most.
        worker_concurrency: tasks that a worker runs at once.
        lease_seconds: how long a worker may be silent.
        partitions: over how many streams tasks are spread.
        redis_utilization: share of a Redis server's core, and of its memory, that is used.
        redis_memory_bytes: memory of one Redis server.
        key_days: after how long the seal key is replaced.
        state_ttl_seconds: how long a state may be brought back.
    """

    utilization: float = 0.6
    zones: int = 3
    lost_utilization: float = 0.85
    upgrade_share: float = 0.1
    max_inflight: int = 1024
    worker_concurrency: int = 32
    lease_seconds: float = 30.0
    partitions: int = 8
    redis_utilization: float = 0.5
    redis_memory_bytes: float = 16 * KIB**3
    key_days: float = 90.0
    state_ttl_seconds: float = 3600.0


@dataclass(frozen=True)
class Group:
    """Identical processes over all zones.

    Attributes:
        count: how many.
        decided_by: what there would be too little of with fewer.
        in_normal_times: how many would do if no zone were ever lost and nothing replaced.
        utilization: share of their cores that is used, when all are there.
        lost_utilization: the same with one zone lost; None if there is only one.
    """

    count: int
    decided_by: str
    in_normal_times: int
    utilization: float
    lost_utilization: float | None


def spread(cores: float, places: float, policy: Policy, *, upgrade_share: float) -> Group:
    """Return the fewest processes, as many in each zone, that do some work.

    Args:
        cores: how many cores the work keeps busy.
        places: how many processes the work fills, if it only waits; 0 if it does not.
        policy: how full they may be.
        upgrade_share: share of them that may be away in normal times.
    """
    zones = policy.zones
    least = max(cores, places) / policy.lost_utilization
    needs = {"computing": cores / policy.utilization, "places for what waits": places / policy.utilization}
    if upgrade_share:
        needs["a rolling upgrade"] = max(least / (1 - upgrade_share), _ceil(least) + 1)
    if zones > 1:
        needs["a lost zone"] = least * zones / (zones - 1)
    decided_by = max(needs, key=lambda name: needs[name])
    per_zone = max(1, _ceil(needs[decided_by] / zones))
    count = per_zone * zones
    left = count - per_zone
    return Group(
        count,
        decided_by if needs[decided_by] > zones - 1 else "one in each zone",
        max(1, _ceil(max(needs["computing"], needs["places for what waits"]))),
        cores / count,
        cores / left if left else None,
    )


def _ceil(number: float) -> int:
    """Round up, but not because of how floats are rounded."""
    return math.ceil(number - 1e-9)


@dataclass(frozen=True)
class Redis:
    """What tasks ask of Redis.

    Attributes:
        servers: how many primaries; 0 without tasks.
        decided_by: what there would be too little of with fewer.
        memory_bytes: what all of them store, indexes included.
        requests_per_second: requests of replicas and workers to all of them.
        idle_reads_per_second: further reads of workers that wait for tasks, at most.
        connections: of all processes together.
    """

    servers: int
    decided_by: str
    memory_bytes: float
    requests_per_second: float
    idle_reads_per_second: float
    connections: int


REDIS_TASK_BYTES: Final = 2200.0
"""A task in Redis beside what it was given and has stored, indexes included; see docs/run/tasks.md."""


def redis_requests_per_task(demand: Demand, policy: Policy) -> float:
    """Return how many requests to Redis one task makes, from its creation to its end; see docs/run/tasks.md."""
    create, from_claim_to_result = 1, 3
    # The question, the claim of the leg after it with its read, and the answer, which reads first.
    each_round = 1 + 2 + 2
    heartbeats = demand.task_seconds * 3 / policy.lease_seconds
    return (
        create
        + from_claim_to_result
        + demand.task_polls
        + demand.task_rounds * each_round
        + demand.task_steps
        + heartbeats
    )


def size_redis(demand: Demand, policy: Policy, costs: Costs, replicas: int, workers: int) -> Redis:
    """Return what tasks ask of Redis."""
    if not demand.tasks_per_second:
        return Redis(0, "no tasks", 0.0, 0.0, 0.0, 0)
    stored = demand.tasks_per_second * demand.task_ttl_seconds
    memory = stored * (REDIS_TASK_BYTES + _BASE64 * demand.task_bytes)
    requests = demand.tasks_per_second * redis_requests_per_task(demand, policy)
    idle = 2.0 * policy.partitions * workers
    needs = {
        "requests": (requests + idle) * costs.redis_seconds / policy.redis_utilization,
        "memory": memory / (policy.redis_memory_bytes * policy.redis_utilization),
    }
    decided_by = max(needs, key=lambda name: needs[name])
    connections = workers * (policy.partitions + 3) + replicas * 3
    return Redis(max(1, _ceil(needs[decided_by])), decided_by, memory, requests, idle, connections)


SEALS_PER_PREFIX: Final = 2**20
"""A process takes a new random prefix for its nonces after so many seals."""

PREFIXES_REMEMBERED: Final = 4096
"""So many prefixes' keys a process remembers for opening; others are derived again each time."""

NONCE_RISK: Final = 2.0**-32
"""How likely a nonce of one key may ever be used twice: the bound of NIST SP 800-38D."""

SEALED_TASK_FIELDS: Final = 6
"""Values that each task has sealed or so, beside its steps, blocks, questions and answers."""


@dataclass(frozen=True)
class KeyUse:
    """What one seal key is used for in its life.

    Attributes:
        seals_per_second: of all processes together.
        seals: in the life of a key.
        nonce_risk: how likely two of those have the same nonce, at most.
        safe_seals: after how many seals the risk would be `NONCE_RISK`.
        safe_years: how long that takes; None if nothing is sealed.
        live_prefixes: prefixes that states which may still come were sealed with.
    """

    seals_per_second: float
    seals: float
    nonce_risk: float
    safe_seals: float
    safe_years: float | None
    live_prefixes: float


def use_of_key(demand: Demand, policy: Policy, processes: int) -> KeyUse:
    """Return what one seal key is used for.

    A nonce is a random prefix of 96 bits, which derives a key of its own, and 96 random bits. Two seals share a nonce
    if they share both. Seals under one prefix are at most `SEALS_PER_PREFIX`, so those collide with a probability of
    2^-57; prefixes of their own have to collide first, which adds next to nothing.
    """
    per_task = SEALED_TASK_FIELDS + demand.task_steps + 2 * demand.task_rounds
    per_second = demand.ephemeral_per_second * demand.rounds + demand.tasks_per_second * per_task
    seals = per_second * policy.key_days * 86400
    safe = NONCE_RISK / nonce_risk(SEALS_PER_PREFIX) * SEALS_PER_PREFIX
    return KeyUse(
        per_second,
        seals,
        nonce_risk(seals),
        safe,
        safe / per_second / (365.25 * 86400) if per_second else None,
        processes + per_second * policy.state_ttl_seconds / SEALS_PER_PREFIX,
    )


def nonce_risk(seals: float) -> float:
    """Return how likely a nonce is used twice among so many seals of one key, at most."""
    prefixes = max(1.0, seals / SEALS_PER_PREFIX)
    within_a_prefix = min(seals, SEALS_PER_PREFIX) ** 2 / 2 / 2.0**96
    prefixes_collide = prefixes**2 / 2 / 2.0**96
    return min(1.0, prefixes * within_a_prefix + prefixes_collide * 2 * within_a_prefix)


@dataclass(frozen=True)
class LostZone:
    """What a zone that is lost at the busiest moment costs.

    Attributes:
        processes: replicas and workers that are there only because a zone may be lost, or others replaced.
        legs_lost: legs under way in that zone, whose clients send them again.
        calls_kept: calls that wait for their users, and go on in another zone.
        tasks_repeated: tasks under way in that zone; each begins again with what it has stored.
        silence_seconds: how long it takes until those begin again.
    """

    processes: int
    legs_lost: float
    calls_kept: float
    tasks_repeated: float
    silence_seconds: float


@dataclass(frozen=True)
class Deployment:
    """What it takes.

    Attributes:
        demand: what for.
        policy: how it is run.
        leg_cpu_seconds: CPU time of one leg, with the tool's.
        capacity: legs a second that one replica does with its core always busy.
        replicas: how many.
        workers: how many.
        redis: what tasks ask of it.
        key_use: what a seal key is used for.
        inbound_bytes_per_second: requests, all together.
        outbound_bytes_per_second: responses, all together.
        lost_zone: what a lost zone costs; None if there is only one.
    """

    demand: Demand
    policy: Policy
    leg_cpu_seconds: float
    capacity: float
    replicas: Group
    workers: Group | None
    redis: Redis
    key_use: KeyUse
    inbound_bytes_per_second: float
    outbound_bytes_per_second: float
    lost_zone: LostZone | None


def size(demand: Demand, policy: Policy, costs: Costs, capacity: float | None = None) -> Deployment:
    """Return the smallest deployment that meets a demand.

    Args:
        demand: what is asked.
        policy: how it is run.
        costs: what the gateway spends.
        capacity: legs a second that one replica was seen to do with its core always busy; None goes by the costs of
            the gateway and the tool.
    """
    gateway = costs.call_seconds(demand.rounds, demand.state_bytes) / (1 + demand.rounds)
    leg_cpu = 1 / capacity if capacity else gateway + demand.tool_cpu_seconds
    cores = demand.legs_per_second * leg_cpu + demand.task_requests_per_second * costs.last_leg_seconds
    in_flight = demand.legs_per_second * (leg_cpu / (1 - policy.lost_utilization) + demand.tool_wait_seconds)
    replicas = spread(cores, in_flight / policy.max_inflight, policy, upgrade_share=policy.upgrade_share)
    workers = _size_workers(demand, policy, costs)
    workers_count = workers.count if workers else 0
    states = demand.ephemeral_per_second * demand.rounds * demand.state_bytes
    return Deployment(
        demand,
        policy,
        leg_cpu,
        1 / leg_cpu,
        replicas,
        workers,
        size_redis(demand, policy, costs, replicas.count, workers_count),
        use_of_key(demand, policy, replicas.count + workers_count),
        demand.requests_per_second * demand.request_bytes + states,
        demand.requests_per_second * demand.response_bytes + states,
        _lost_zone(demand, policy, replicas, workers, leg_cpu) if policy.zones > 1 else None,
    )


def _size_workers(demand: Demand, policy: Policy, costs: Costs) -> Group | None:
    if not demand.tasks_per_second:
        return None
    legs = 1 + demand.task_rounds
    cores = demand.tasks_per_second * (costs.task_seconds * legs + demand.task_cpu_seconds)
    running = demand.tasks_per_second * max(demand.task_seconds, demand.task_cpu_seconds)
    return spread(cores, running / policy.worker_concurrency, policy, upgrade_share=0.0)


def _lost_zone(demand: Demand, policy: Policy, replicas: Group, workers: Group | None, leg_cpu: float) -> LostZone:
    share = 1 / policy.zones
    spare = replicas.count - replicas.in_normal_times
    if workers:
        spare += workers.count - workers.in_normal_times
    return LostZone(
        max(0, spare),
        demand.legs_per_second * (leg_cpu / (1 - policy.utilization) + demand.tool_wait_seconds) * share,
        demand.ephemeral_per_second * demand.rounds * demand.think_seconds,
        demand.tasks_per_second * demand.task_seconds * share,
        policy.lease_seconds * 7 / 6,
    )
