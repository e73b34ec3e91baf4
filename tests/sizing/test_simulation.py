"""The simulation agrees with queueing theory where a formula exists, and its counts add up."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.sizing.simulation import Replicas, Simulated, SimulatedLeg, poisson, simulate

SEED = 20260728
LONG = 20_000.0  # services
ONE = Replicas()


def run(
    share: float, leg: Callable[[Random], SimulatedLeg], replicas: Replicas = ONE, seconds: float = LONG
) -> Simulated:
    """Let legs that take one second on average arrive, at a rate that keeps each replica busy for this share."""
    random = Random(SEED)
    arrivals = poisson(share * replicas.count, seconds, random)
    return simulate(arrivals, lambda: leg(random), replicas)


def busy_share(simulated: Simulated) -> float:
    """Return how busy the first replica was, which differs slightly from the target by chance."""
    return simulated.busy_seconds[0] / LONG


def always_a_second(_random: Random) -> SimulatedLeg:
    return SimulatedLeg(1.0)


def exponential(random: Random) -> SimulatedLeg:
    return SimulatedLeg(random.expovariate(1.0))


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_legs_of_one_length_wait_as_m_d_1_says(share: float) -> None:
    simulated = run(share, always_a_second)

    busy = busy_share(simulated)
    assert simulated.mean_seconds == pytest.approx(1 + busy / (2 * (1 - busy)), rel=0.06)


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_legs_of_exponential_length_take_as_long_as_m_m_1_says(share: float) -> None:
    simulated = run(share, exponential)

    busy = busy_share(simulated)
    assert simulated.mean_seconds == pytest.approx(1 / (1 - busy), rel=0.08)
    assert simulated.percentile(0.9) == pytest.approx(-math.log(0.1) / (1 - busy), rel=0.08)


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_legs_with_checkpoints_share_the_core_as_processor_sharing_says(share: float) -> None:
    simulated = run(share, lambda _random: SimulatedLeg(1.0, checkpoint_seconds=0.05))

    assert simulated.mean_seconds == pytest.approx(1 / (1 - busy_share(simulated)), rel=0.08)


def test_legs_that_only_wait_are_refused_as_erlang_says() -> None:
    """A limit of 1 has no waiting room: M/G/1/1 refuses a/(1+a) of the legs, whatever they wait for."""
    for leg in (lambda _random: SimulatedLeg(0.0, 1.0), lambda random: SimulatedLeg(0.0, random.expovariate(1.0))):
        assert run(0.8, leg, Replicas(limit=1)).refused_share == pytest.approx(0.8 / 1.8, rel=0.03)


def test_a_waiting_room_refuses_as_m_m_c_k_says() -> None:
    places, room, offered = 4, 2, 4.0
    weights = [offered**n / math.factorial(n) for n in range(places + 1)]
    weights += [weights[places] * (offered / places) ** n for n in range(1, room + 1)]

    waiting = Replicas(limit=places)
    simulated = run(offered, lambda random: SimulatedLeg(0.0, random.expovariate(1.0)), waiting, LONG / offered)

    assert simulated.refused_share == pytest.approx(weights[-1] / sum(weights), rel=0.05)


def test_the_core_is_busy_for_as_long_as_legs_need_it() -> None:
    simulated = run(0.5, exponential, Replicas(count=2))

    assert [busy / LONG for busy in simulated.busy_seconds] == pytest.approx([0.5, 0.5], rel=0.05)


def test_a_leg_that_one_replica_refuses_is_accepted_by_another() -> None:
    together = [0.0] * 4
    two = simulate(together, lambda: SimulatedLeg(0.0, 1.0), Replicas(count=2, limit=1))
    four = simulate(together, lambda: SimulatedLeg(0.0, 1.0), Replicas(count=4, limit=1))

    assert (two.refused, len(two.seconds)) == (2, 2)
    assert (four.refused, four.refusals, len(four.seconds)) == (0, 0, 4)
    late = simulate([0.0, 0.5, 0.6], lambda: SimulatedLeg(0.0, 1.0), Replicas(count=2, limit=1, caller_retries=1))
    assert (late.refused, late.refusals) == (0, 2)
    assert late.seconds == pytest.approx([1.0, 1.0, 2.0])


def test_a_refused_caller_tries_again_only_so_often() -> None:
    at_once = [0.0, 0.0]
    once = Replicas(limit=1, caller_retries=1)

    assert simulate(at_once, lambda: SimulatedLeg(0.0, 0.9), once).seconds == pytest.approx([0.9, 1.9])
    assert simulate(at_once, lambda: SimulatedLeg(0.0, 5.0), once).refused == 1


def test_a_caller_that_waits_too_long_for_a_place_is_refused() -> None:
    simulated = simulate([0.0, 0.0, 0.0], lambda: SimulatedLeg(0.0, 30.0), Replicas(limit=2))

    assert (len(simulated.seconds), simulated.refused) == (2, 1)


def test_long_legs_are_handed_on_under_too_much_load_and_at_most_twice() -> None:
    arrivals = poisson(30, 20, Random(SEED))

    def legs() -> SimulatedLeg:
        return SimulatedLeg(0.1, checkpoint_seconds=0.01)

    calm = simulate(arrivals, legs, Replicas(count=4, target_seconds=0.05))
    busy = simulate(arrivals, legs, Replicas(count=2, target_seconds=0.05))

    assert calm.sheds < 0.1 * len(arrivals)
    assert 0.1 * len(arrivals) < busy.sheds <= 2 * len(arrivals)
    assert simulate(arrivals, legs, Replicas(count=2)).sheds == 0


def test_independent_callers_arrive_at_the_requested_rate() -> None:
    arrivals = poisson(50, 1000, Random(SEED))

    assert len(arrivals) == pytest.approx(50_000, rel=0.02)
    assert arrivals == sorted(arrivals)
    assert 0 < arrivals[0] < arrivals[-1] < 1000


LEGS = st.builds(
    SimulatedLeg,
    cpu_seconds=st.floats(0.001, 0.5),
    wait_seconds=st.floats(0, 2),
    checkpoint_seconds=st.sampled_from([0.01, 0.1, math.inf]),
)
REPLICAS = st.builds(
    Replicas,
    count=st.integers(1, 4),
    limit=st.none() | st.integers(1, 6),
    target_seconds=st.sampled_from([0.05, math.inf]),
    caller_retries=st.integers(0, 3),
)


@given(st.lists(st.tuples(st.floats(0, 10), LEGS), max_size=60), REPLICAS)
def test_every_call_ends_once_and_no_core_works_more_than_legs_need(
    calls: list[tuple[float, SimulatedLeg]], replicas: Replicas
) -> None:
    calls.sort(key=lambda call: call[0])
    legs = iter([leg for _, leg in calls])

    simulated = simulate([arrival for arrival, _ in calls], lambda: next(legs), replicas)

    assert len(simulated.seconds) + simulated.refused == len(calls)
    assert sum(simulated.busy_seconds) <= sum(leg.cpu_seconds for _, leg in calls) + 1e-6
    if not simulated.refused:
        assert sum(simulated.busy_seconds) == pytest.approx(sum(leg.cpu_seconds for _, leg in calls))
        least = sum(leg.cpu_seconds + leg.wait_seconds for _, leg in calls)
        assert sum(simulated.seconds) >= least - 1e-6
