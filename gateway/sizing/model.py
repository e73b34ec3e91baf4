"""Pure: calculates a deployment from what users do and what a replica can do.

All numbers are for the busiest moment. Nothing is rounded before the end, and each part reports what decided its size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.sizing.costs import KIB, GatewayCosts

_BASE64: Final = 4 / 3


def _option(default: float, text: str) -> Any:
    """Return a field that `gateway size` has an option for, with its default and its help text."""
    return field(default=default, metadata={"text": text})


@dataclass(frozen=True)
class Demand:
    """The load at the busiest moment.

    `state_bytes` is as in the raw data of a load test. `task_seconds` and `task_cpu_seconds` are those of all legs of a
    task. `task_bytes` are its arguments, steps, answers and result.
    """

    users: float = _option(100_000.0, "how many users are active at once")
    call_every_seconds: float = _option(60.0, "seconds from the start of one call of a user to the start of the next")
    rounds: float = _option(1.0, "how often a call asks its user, on average")
    think_seconds: float = _option(10.0, "how long a user takes to answer")
    state_bytes: float = _option(600.0, "size of a state on the wire")
    request_bytes: float = _option(1500.0, "size of a request with its headers, without a state")
    response_bytes: float = _option(1000.0, "size of a response with its headers, without a state")
    tool_cpu_seconds: float = _option(0.0, "CPU time of the tool for one leg")
    tool_wait_seconds: float = _option(0.05, "how long the tool waits for other systems in one leg")
    task_share: float = _option(0.0, "share of calls that become tasks, from 0 to 1")
    task_seconds: float = _option(10.0, "how long a task runs")
    task_cpu_seconds: float = _option(0.01, "CPU time of a task")
    task_rounds: float = _option(0.0, "how often a task asks its user")
    task_steps: float = _option(2.0, "how many steps and blocks a task stores")
    task_polls: float = _option(3.0, "how often the client polls a task")
    task_bytes: float = _option(2000.0, "size of a task's arguments and stored data, before encryption")
    task_ttl_seconds: float = _option(3600.0, "how long a task is stored")

    @property
    def calls_per_second(self) -> float:
        """Calls that start per second, including tasks."""
        return self.users / self.call_every_seconds

    @property
    def tasks_per_second(self) -> float:
        """Calls per second that become tasks."""
        return self.calls_per_second * self.task_share

    @property
    def ephemeral_per_second(self) -> float:
        """Calls per second that do not become tasks."""
        return self.calls_per_second - self.tasks_per_second

    @property
    def legs_per_second(self) -> float:
        """Legs per second of calls that do not become tasks."""
        return self.ephemeral_per_second * (1 + self.rounds)

    @property
    def task_requests_per_second(self) -> float:
        """Requests per second that create, poll and answer tasks."""
        return self.tasks_per_second * (1 + self.task_polls + self.task_rounds)

    @property
    def requests_per_second(self) -> float:
        """All requests per second to replicas."""
        return self.legs_per_second + self.task_requests_per_second


@dataclass(frozen=True)
class Policy:
    """How the deployment is run.

    With `utilization`, all replicas are up. `upgrade_share` is 0 if new ones start first. A worker may send no
    heartbeat for `lease_seconds`. Tasks are spread over `partitions` streams. A client may take `state_ttl_seconds` to
    send a state back.
    """

    utilization: float = _option(0.6, "share of a core that may be used at the busiest moment")
    zones: int = _option(3, "how many zones to spread over; with two or more, one may be lost")
    lost_utilization: float = _option(0.85, "share of a core that may be used while a zone is lost")
    upgrade_share: float = _option(0.1, "share of replicas that are down at once during a rolling upgrade")
    max_inflight: int = _option(1024, "how many requests one replica works on at once")
    worker_concurrency: int = _option(32, "how many tasks one worker runs at once")
    lease_seconds: float = _option(30.0, "GATEWAY_TASK_LEASE_SECONDS")
    partitions: int = _option(8, "GATEWAY_TASK_PARTITIONS")
    redis_utilization: float = _option(0.5, "share of a Redis server's core and memory that may be used")
    redis_memory_bytes: float = _option(16 * KIB**3, "memory of one Redis server")
    key_days: float = _option(90.0, "how many days a seal key is used")
    state_ttl_seconds: float = _option(3600.0, "GATEWAY_STATE_TTL_SECONDS")


@dataclass(frozen=True)
class Group:
    """Identical processes over all zones.

    Attributes:
        decided_by: the need that requires this many.
        in_normal_times: how many would be enough without failures and upgrades.
        utilization: the used share of their cores when all are up.
        lost_utilization: the used share while one zone is lost; None if there is only one.
    """

    count: int
    decided_by: str
    in_normal_times: int
    utilization: float
    lost_utilization: float | None


def spread(cores: float, places: float, policy: Policy, *, upgrade_share: float) -> Group:
    """Return the smallest group of processes for some work, with the same number in each zone.

    The work keeps `cores` busy and fills `places` by waiting. `upgrade_share` of the processes may be down in normal
    times.
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
    """Round up, but ignore rounding errors of floats."""
    return math.ceil(number - 1e-9)


@dataclass(frozen=True)
class Redis:
    """The load that tasks put on Redis.

    Attributes:
        servers: the number of primaries; 0 without tasks.
        decided_by: the need that requires this many.
        memory_bytes: the size of everything stored on all servers, including indexes.
        requests_per_second: requests of replicas and workers to all servers.
        idle_reads_per_second: further reads of workers that wait for tasks, at most.
    """

    servers: int
    decided_by: str
    memory_bytes: float
    requests_per_second: float
    idle_reads_per_second: float
    connections: int


REDIS_TASK_BYTES: Final = 2200.0
"""The size of a task in Redis without its own data, but including indexes; see docs/run/tasks.md."""


def redis_requests_per_task(demand: Demand, policy: Policy) -> float:
    """Return how many requests to Redis one task causes, from its creation to its end; see docs/run/tasks.md."""
    create, from_claim_to_result = 1, 3
    # The question, the claim and read of the next leg, and the answer, which reads first.
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


def size_redis(demand: Demand, policy: Policy, costs: GatewayCosts, replicas: int, workers: int) -> Redis:
    """Return the load that tasks put on Redis."""
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
"""After this many seals, a process takes a new random prefix for its nonces."""

PREFIXES_REMEMBERED: Final = 4096
"""How many prefixes' keys a process remembers for opening. It derives all others again each time."""

NONCE_RISK: Final = 2.0**-32
"""The highest acceptable probability that a nonce of one key is used twice: the bound of NIST SP 800-38D."""

SEALED_TASK_FIELDS: Final = 6
"""About how many values of a task are sealed, besides its steps, blocks, questions and answers."""


@dataclass(frozen=True)
class KeyUse:
    """How one seal key is used during its life.

    Attributes:
        seals: the seals during the life of the key.
        nonce_risk: an upper bound for the probability that two of them have the same nonce.
        safe_seals: the number of seals at which the risk reaches `NONCE_RISK`.
        safe_years: how long that takes; None if nothing is sealed.
        live_prefixes: the number of prefixes of states that clients may still send back.
    """

    seals_per_second: float
    seals: float
    nonce_risk: float
    safe_seals: float
    safe_years: float | None
    live_prefixes: float


def use_of_key(demand: Demand, policy: Policy, processes: int) -> KeyUse:
    """Return how one seal key is used.

    A nonce consists of a random prefix of 96 bits, from which a separate key is derived, and 96 random bits. Two seals
    share a nonce if they share both. A prefix has at most `SEALS_PER_PREFIX` seals, so two of them collide with a
    probability of 2^-57. Seals under different prefixes collide only if the prefixes do, which adds almost nothing.
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
    """Return an upper bound for the probability that this many seals of one key use a nonce twice."""
    prefixes = max(1.0, seals / SEALS_PER_PREFIX)
    within_a_prefix = min(seals, SEALS_PER_PREFIX) ** 2 / 2 / 2.0**96
    prefixes_collide = prefixes**2 / 2 / 2.0**96
    return min(1.0, prefixes * within_a_prefix + prefixes_collide * 2 * within_a_prefix)


@dataclass(frozen=True)
class LostZone:
    """The cost of losing a zone at the busiest moment.

    Attributes:
        processes: replicas and workers that exist only for failures and upgrades.
        legs_lost: legs running in the zone, whose clients send them again.
        calls_kept: calls that wait for their users and continue in another zone.
        tasks_repeated: tasks running in the zone. Each resumes from what it has stored.
        silence_seconds: how long it takes until they resume.
    """

    processes: int
    legs_lost: float
    calls_kept: float
    tasks_repeated: float
    silence_seconds: float


@dataclass(frozen=True)
class SizedDeployment:
    """The deployment that meets a demand.

    Attributes:
        leg_cpu_seconds: CPU time of one leg, including the tool.
        capacity: legs per second that one replica serves when its core is always busy.
        workers: the workers; None without tasks.
        lost_zone: the cost of losing a zone; None if there is only one.
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


def size(demand: Demand, policy: Policy, costs: GatewayCosts, capacity: float | None = None) -> SizedDeployment:
    """Return the smallest deployment that meets a demand.

    `capacity` is the legs per second of one replica with its core always busy, as measured. None calculates it from the
    costs of the gateway and the tool.
    """
    gateway = costs.call_seconds(demand.rounds, demand.state_bytes) / (1 + demand.rounds)
    leg_cpu = 1 / capacity if capacity else gateway + demand.tool_cpu_seconds
    cores = demand.legs_per_second * leg_cpu + demand.task_requests_per_second * costs.last_leg_seconds
    in_flight = demand.legs_per_second * (leg_cpu / (1 - policy.lost_utilization) + demand.tool_wait_seconds)
    replicas = spread(cores, in_flight / policy.max_inflight, policy, upgrade_share=policy.upgrade_share)
    workers = _size_workers(demand, policy, costs)
    workers_count = workers.count if workers else 0
    states = demand.ephemeral_per_second * demand.rounds * demand.state_bytes
    return SizedDeployment(
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


def _size_workers(demand: Demand, policy: Policy, costs: GatewayCosts) -> Group | None:
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
