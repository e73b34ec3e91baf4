"""Simulations report a steady load, without the time in which replicas fill up."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest

from gateway.sizing import outlook
from gateway.sizing.costs import MEASURED, Costs
from gateway.sizing.model import Demand, Policy, size
from gateway.sizing.outlook import Outlook, outlooks
from gateway.sizing.simulation import Replicas, SimulatedLeg, simulate

DEMAND = Demand(users=1_000_000, task_share=0.02)
POLICY = Policy()


@pytest.fixture(autouse=True)
def fewer_legs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate no more legs than it takes to see a share to a hundredth."""
    monkeypatch.setattr(outlook, "_LEGS", 20_000)


@functools.cache
def outlooks_for(demand: Demand, policy: Policy) -> list[Outlook]:
    return outlooks(size(demand, policy, Costs.load(MEASURED)))


def overload(demand: Demand, policy: Policy) -> Outlook:
    return outlooks_for(demand, policy)[-1]


@pytest.mark.parametrize(
    ("demand", "policy"),
    [
        pytest.param(DEMAND, POLICY, id="cores decide"),
        pytest.param(replace(DEMAND, tool_wait_seconds=10.0), POLICY, id="places decide"),
        pytest.param(DEMAND, Policy(max_inflight=50), id="few places decide"),
    ],
)
def test_half_as_much_again_as_replicas_can_do_is_refused_to_a_third(demand: Demand, policy: Policy) -> None:
    result = overload(demand, policy).result
    assert result.refused_share == pytest.approx(1 / 3, abs=0.01)


def test_a_deployment_that_is_large_enough_refuses_nothing() -> None:
    *enough, _ = outlooks_for(DEMAND, POLICY)
    assert [seen.situation for seen in enough] == ["all replicas up", "a zone lost"]
    assert [seen.result.refused for seen in enough] == [0, 0]


def test_the_report_says_after_and_over_which_time_refusals_are_counted() -> None:
    seen = overload(DEMAND, POLICY)
    counted = len(seen.result.seconds) + seen.result.refused
    rate = 1.5 * 6 * size(DEMAND, POLICY, Costs.load(MEASURED)).capacity
    assert seen.settling_seconds == pytest.approx(0.4, rel=0.01)
    assert counted / seen.counted_seconds == pytest.approx(rate, rel=0.03)


def test_calls_that_come_too_early_are_served_but_not_counted() -> None:
    arrivals = [0.0, 0.0, 1.0, 1.0]
    everything = simulate(arrivals, lambda: SimulatedLeg(0.0, 0.5), Replicas(limit=1))
    late = simulate(arrivals, lambda: SimulatedLeg(0.0, 0.5), Replicas(limit=1), counted_from=1.0)
    assert (len(everything.seconds), everything.refused) == (2, 2)
    assert (len(late.seconds), late.refused) == (1, 1)
    busy = simulate([0.0, 0.2], lambda: SimulatedLeg(0.0, 0.5), Replicas(limit=1), counted_from=0.1)
    assert (len(busy.seconds), busy.refused) == (0, 1)
