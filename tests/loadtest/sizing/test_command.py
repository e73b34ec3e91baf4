"""The costs that sizing assumes can be measured."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from loadtest import __main__ as command
from loadtest.cluster import Cluster, ClusterError
from loadtest.sizing.measure import cores_apart, cpu_seconds, measure_costs


@pytest.mark.parametrize("arguments", [[], ["--measure", "--seconds", "0"]], ids=" ".join)
def test_what_makes_no_sense_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["size", *arguments])

    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_costs_are_measured_and_cores_are_given_back(tmp_path: Path) -> None:
    cores = os.sched_getaffinity(0)
    said: list[str] = []

    costs = measure_costs(tmp_path, 0.3, said.append)

    assert min(costs.first_leg_seconds, costs.middle_leg_seconds, costs.last_leg_seconds, costs.task_seconds) > 0
    assert costs.redis_seconds > 0
    assert 200 < costs.state_bytes < 500
    assert len(said) == 8
    assert os.sched_getaffinity(0) == cores


def test_cpu_time_is_that_of_all_threads() -> None:
    before = cpu_seconds(os.getpid())
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass

    assert cpu_seconds(os.getpid()) - before > 0.05
    with pytest.raises(ClusterError, match="needs Linux"):
        cpu_seconds(2**30)


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
