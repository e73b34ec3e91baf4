"""A deployment is as large as necessary: checked by hand in simple cases, and never smaller for a higher load."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.sizing.costs import KIB, GatewayCosts
from gateway.sizing.model import (
    NONCE_RISK,
    Demand,
    Policy,
    SizedDeployment,
    nonce_risk,
    redis_requests_per_task,
    size,
)

COSTS = GatewayCosts(0.001, 0.001, 0.001, 0.00001, 300, 0.002, 0.0001, "nothing")
DEMAND = Demand(users=60_000, state_bytes=300, tool_wait_seconds=0)  # 1000 calls and 2000 legs a second: 2 cores
POLICY = Policy(utilization=0.5, zones=1, lost_utilization=0.8, upgrade_share=0)
TASKS = replace(DEMAND, task_share=0.1, task_rounds=1)


def test_calls_of_users_become_legs() -> None:
    assert DEMAND.calls_per_second == 1000
    assert DEMAND.legs_per_second == 2000
    assert TASKS.tasks_per_second == 100
    assert TASKS.legs_per_second == 1800
    assert TASKS.requests_per_second == 1800 + 100 * (1 + 3 + 1)


def test_replicas_are_so_many_that_each_is_as_busy_as_it_may_be() -> None:
    deployment = size(DEMAND, POLICY, COSTS)

    assert deployment.capacity == pytest.approx(1000)
    assert (deployment.replicas.count, deployment.replicas.decided_by) == (4, "computing")
    assert deployment.replicas.utilization == pytest.approx(0.5)
    assert deployment.replicas.lost_utilization is None
    assert deployment.lost_zone is None
    assert deployment.workers is None
    assert deployment.redis.servers == 0


def test_the_time_of_the_tool_comes_on_top_and_a_capacity_that_was_seen_counts_instead() -> None:
    assert size(replace(DEMAND, tool_cpu_seconds=0.001), POLICY, COSTS).replicas.count == 8
    assert size(replace(DEMAND, tool_cpu_seconds=9.0), POLICY, COSTS, capacity=500).replicas.count == 8


def test_states_cost_by_their_size_once_out_and_once_in() -> None:
    large = size(replace(DEMAND, state_bytes=300 + 100 * KIB), POLICY, COSTS)

    assert large.leg_cpu_seconds == pytest.approx(0.001 + 2 * 100 * 0.00001 / 2)
    small = size(DEMAND, POLICY, COSTS)
    more = 1000 * 100 * KIB
    assert large.inbound_bytes_per_second - small.inbound_bytes_per_second == pytest.approx(more)
    assert large.outbound_bytes_per_second - small.outbound_bytes_per_second == pytest.approx(more)


def test_waiting_legs_need_places() -> None:
    replicas = size(replace(DEMAND, tool_wait_seconds=10), replace(POLICY, max_inflight=1000), COSTS).replicas

    assert replicas.count == math.ceil(2000 * (10 + 0.001 / 0.2) / 1000 / 0.5)
    assert replicas.decided_by == "places for what waits"


def test_those_that_are_left_when_a_zone_is_lost_are_enough() -> None:
    replicas = size(DEMAND, replace(POLICY, zones=2), COSTS).replicas

    assert replicas.count == 6  # 2 cores at 0.8: 2.5, so three in each zone
    assert replicas.decided_by == "a lost zone"
    assert replicas.lost_utilization == pytest.approx(2 / 3)
    assert replicas.in_normal_times == 4


def test_one_replica_cannot_be_upgraded_without_another_one() -> None:
    few = replace(DEMAND, users=60)
    assert size(few, POLICY, COSTS).replicas.count == 1
    assert size(few, replace(POLICY, upgrade_share=0.1), COSTS).replicas.count == 2
    assert size(few, replace(POLICY, zones=3), COSTS).replicas.decided_by == "one in each zone"
    half = replace(POLICY, upgrade_share=0.5)
    assert size(DEMAND, half, COSTS).replicas.count == 5
    assert size(DEMAND, half, COSTS).replicas.decided_by == "a rolling upgrade"


def test_a_lost_zone_loses_legs_under_way_and_no_call_that_waits_for_its_user() -> None:
    lost = size(replace(TASKS, think_seconds=10), replace(POLICY, zones=4), COSTS).lost_zone

    assert lost is not None
    assert lost.calls_kept == pytest.approx(9000)
    assert lost.legs_lost == pytest.approx(1800 * 0.002 / 4)
    assert lost.tasks_repeated == pytest.approx(100 * 10 / 4)
    assert lost.silence_seconds == 35
    assert lost.processes > 0


def test_workers_have_places_for_tasks_and_time_for_what_those_compute() -> None:
    waiting = size(TASKS, replace(POLICY, worker_concurrency=10), COSTS).workers
    computing = size(replace(TASKS, task_cpu_seconds=1), replace(POLICY, worker_concurrency=1000), COSTS).workers

    assert waiting is not None
    assert (waiting.count, waiting.decided_by) == (200, "places for what waits")
    assert computing is not None
    assert (computing.count, computing.decided_by) == (math.ceil(100 * 1.004 / 0.5), "computing")


def test_redis_is_asked_for_each_transition_of_a_task() -> None:
    plain = Demand(users=1, task_polls=0, task_rounds=0, task_steps=0, task_seconds=0)

    def requests(**more: float) -> float:
        return redis_requests_per_task(replace(plain, **more), POLICY)

    assert requests() == 4
    assert requests(task_polls=5) == 9
    assert requests(task_steps=2) == 6
    assert requests(task_rounds=1) == 9
    assert requests(task_seconds=30) == 7


def test_redis_keeps_tasks_as_long_as_they_live() -> None:
    redis = size(replace(TASKS, task_bytes=3000, task_ttl_seconds=100), POLICY, COSTS).redis
    assert redis.memory_bytes == pytest.approx(100 * 100 * (2200 + 4000))

    tiny = replace(POLICY, redis_memory_bytes=31_000_000)
    assert size(replace(TASKS, task_bytes=3000, task_ttl_seconds=100), tiny, COSTS).redis.servers == 4
    assert size(replace(TASKS, task_polls=100), POLICY, COSTS).redis.decided_by == "requests"


def test_the_risk_of_a_nonce_is_that_of_birthdays() -> None:
    assert nonce_risk(2**10) == pytest.approx(2.0**-77)
    assert nonce_risk(2**20) == pytest.approx(2.0**-57)
    assert nonce_risk(2**45) == pytest.approx(2.0**-32)
    use = size(DEMAND, POLICY, COSTS).key_use
    assert use.seals_per_second == 1000
    assert nonce_risk(use.safe_seals) == pytest.approx(NONCE_RISK)
    assert use.safe_years == pytest.approx(2**45 / 1000 / 86400 / 365.25)
    assert use.live_prefixes == pytest.approx(4 + 3_600_000 / 2**20)


def test_without_questions_nothing_is_sealed() -> None:
    use = size(replace(DEMAND, rounds=0), POLICY, COSTS).key_use
    assert (use.seals_per_second, use.safe_years) == (0, None)


DEMANDS = st.builds(
    Demand,
    users=st.floats(1, 1e8),
    call_every_seconds=st.floats(1, 1000),
    rounds=st.floats(0, 10),
    state_bytes=st.floats(0, 65536),
    tool_cpu_seconds=st.floats(0, 0.1),
    tool_wait_seconds=st.floats(0, 10),
    task_share=st.floats(0, 1),
    task_seconds=st.floats(0, 100),
    task_cpu_seconds=st.floats(0, 1),
    task_rounds=st.floats(0, 3),
    task_steps=st.floats(0, 20),
    task_polls=st.floats(0, 20),
    task_bytes=st.floats(0, 1e6),
)
POLICIES = st.builds(
    Policy,
    utilization=st.floats(0.1, 0.8),
    zones=st.integers(1, 5),
    lost_utilization=st.floats(0.1, 0.95),
    upgrade_share=st.floats(0, 0.5),
    max_inflight=st.integers(10, 4096),
    worker_concurrency=st.integers(1, 100),
)


def numbers(deployment: SizedDeployment) -> list[float]:
    return [
        deployment.replicas.count,
        deployment.workers.count if deployment.workers else 0,
        deployment.redis.servers,
        deployment.redis.memory_bytes,
        deployment.key_use.seals,
        deployment.key_use.nonce_risk,
        deployment.inbound_bytes_per_second,
        deployment.outbound_bytes_per_second,
    ]


MORE = sorted({field.name for field in fields(Demand)} - {"call_every_seconds", "task_share", "think_seconds"})


@given(DEMANDS, POLICIES, st.sampled_from(MORE), st.floats(1, 10))
def test_whoever_asks_more_never_needs_less(demand: Demand, policy: Policy, name: str, times: float) -> None:
    more: dict[str, Any] = {name: getattr(demand, name) * times}

    before, after = numbers(size(demand, policy, COSTS)), numbers(size(replace(demand, **more), policy, COSTS))

    assert all(late >= early * (1 - 1e-9) for early, late in zip(before, after, strict=True))


@given(DEMANDS, POLICIES)
def test_nobody_is_busier_than_allowed(demand: Demand, policy: Policy) -> None:
    deployment = size(demand, policy, COSTS)
    for group in (deployment.replicas, deployment.workers):
        if group is None:
            continue
        assert group.count % policy.zones == 0
        assert group.utilization <= policy.utilization * (1 + 1e-6)
        if group.lost_utilization is not None:
            assert group.lost_utilization <= policy.lost_utilization * (1 + 1e-6)


@given(DEMANDS, POLICIES)
def test_a_slower_machine_never_needs_fewer_replicas(demand: Demand, policy: Policy) -> None:
    slower = replace(
        COSTS, first_leg_seconds=0.002, middle_leg_seconds=0.002, last_leg_seconds=0.002, task_seconds=0.004
    )

    assert size(demand, policy, slower).replicas.count >= size(demand, policy, COSTS).replicas.count
