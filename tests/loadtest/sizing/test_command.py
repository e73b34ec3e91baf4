"""The costs that sizing assumes can be measured, and its simulation compared with real replicas."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gateway.sizing.simulation import Simulated
from loadtest import __main__ as command
from loadtest.cluster import Cluster, ClusterError
from loadtest.sizing.check import KINDS, Comparison, compare
from loadtest.sizing.measure import Observed, cores_apart, cpu_seconds, measure_costs, runnable_seconds

WAITS, COMPUTES = KINDS


@pytest.mark.parametrize("arguments", [[], ["--measure", "--check"], ["--measure", "--seconds", "0"]], ids=" ".join)
def test_what_makes_no_sense_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["size", *arguments])

    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


def compared(measured: Observed, simulated: Simulated) -> Comparison:
    return Comparison(WAITS, 1, 0.5, measured, simulated)


def test_the_simulation_fits_if_both_are_close() -> None:
    measured = Observed([1.0] * 9, 1)

    assert compared(measured, Simulated([1.1] * 9, 1)).passed
    assert not compared(measured, Simulated([1.3] * 9, 1)).passed
    assert not compared(measured, Simulated([0.7] * 9, 1)).passed
    assert not compared(measured, Simulated([1.0] * 9, 4)).passed
    assert Comparison(COMPUTES, 1, 0.5, measured, Simulated([9.0] * 9, 1)).passed
    assert not compared(Observed([], 0), Simulated()).passed
    assert "+30.0%" in compared(measured, Simulated([1.3] * 9, 1)).row()


def test_replicas_get_the_calls_that_the_simulation_gets(tmp_path: Path) -> None:
    comparisons = list(compare(WAITS, 2, tmp_path, seconds=1))

    assert [comparison.load for comparison in comparisons] == list(WAITS.loads)
    for comparison in comparisons:
        measured, simulated = comparison.measured, comparison.simulated
        assert len(measured.seconds) + measured.refused == len(simulated.seconds) + simulated.refused > 0


def test_costs_are_measured_and_cores_are_given_back(tmp_path: Path) -> None:
    cores = os.sched_getaffinity(0)
    said: list[str] = []

    costs = measure_costs(tmp_path, 0.3, said.append)

    assert min(costs.first_leg_seconds, costs.middle_leg_seconds, costs.last_leg_seconds, costs.task_seconds) > 0
    assert costs.redis_seconds > 0
    assert 200 < costs.state_bytes < 500
    assert len(said) == 8
    assert os.sched_getaffinity(0) == cores


def test_cpu_time_is_that_of_all_threads_and_runnable_time_includes_waiting(tmp_path: Path) -> None:
    before, wanted = cpu_seconds(os.getpid()), runnable_seconds(os.getpid())
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass

    assert cpu_seconds(os.getpid()) - before > 0.05
    assert runnable_seconds(os.getpid()) - wanted > 0.05
    with pytest.raises(ClusterError, match="needs Linux"):
        cpu_seconds(2**30)
    with pytest.raises(ClusterError, match="needs Linux"):
        runnable_seconds(2**30)


def test_each_process_gets_a_core_and_the_callers_get_the_others(tmp_path: Path) -> None:
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        pytest.skip("there is only one core")
    with Cluster(tmp_path, replicas=1, balancer=False) as cluster:
        pid = cluster.replicas[0].pid
        with cores_apart([pid]):
            assert os.sched_getaffinity(pid) == {min(cores)}
            assert os.sched_getaffinity(0) == cores - {min(cores)}
        assert os.sched_getaffinity(0) == cores
