"""The command: its exit codes, and runs against an existing deployment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from loadtest.__main__ import main
from loadtest.cluster import REPOSITORY, Cluster, free_port
from loadtest.rawdata import read
from loadtest.scenarios import SCENARIOS
from loadtest.verdict import MEASURES

SECONDS = "3"


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


def loadtest(*arguments: str, **environ: str) -> Done:
    done = subprocess.run(
        [sys.executable, "-m", "loadtest", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def test_every_bound_names_something_that_can_be_measured() -> None:
    bounds = [bound for scenario in SCENARIOS.values() for bound in scenario.bounds + scenario.cluster_bounds]
    assert {bound.measure for bound in bounds} <= MEASURES.keys()
    assert all(bound.text() for bound in bounds)


def test_a_target_is_called_and_its_processes_are_read(cluster: Cluster, tmp_path: Path) -> None:
    metrics = [f"--metrics={replica.name}={replica.metrics_url}" for replica in cluster.replicas]

    done = loadtest("baseline", "--target", cluster.url, *metrics, "--seconds", SECONDS, "--out", str(tmp_path))

    assert done.code == 0, done
    assert "PASSED" in done.out
    assert str(tmp_path / "report.html") in done.out
    run = read(tmp_path)
    assert run.about["verdict"]["passed"]
    assert {sample.process for sample in run.samples} == {"r1", "r2"}
    assert {leg.replica for leg in run.legs} == {"r1", "r2"}
    assert [event.what for event in run.events] == ["the users stop"]
    assert not (tmp_path / "cluster").exists()


def test_what_a_scenario_does_to_a_cluster_is_left_to_the_operator_of_a_target(
    cluster: Cluster, tmp_path: Path
) -> None:
    pids = [replica.pid for replica in cluster.replicas]

    done = loadtest(
        "replica-kill", "--target", cluster.url, "--seconds", SECONDS, "--users", "6", "--out", str(tmp_path)
    )

    assert done.code == 0, done
    assert "Carry out the " in done.out
    assert [(replica.pid, replica.alive) for replica in cluster.replicas] == [(pid, True) for pid in pids]
    assert sum(read(tmp_path).about["users"].values()) == 6


def test_nobody_at_the_target_fails_the_run(tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{free_port()}/mcp"

    done = loadtest("baseline", "--target", nobody, "--seconds", SECONDS, "--out", str(tmp_path))

    assert done.code == 1, done
    assert "FAILED" in done.out


def test_a_missing_token_is_reported_before_anything_is_started(tmp_path: Path) -> None:
    missing = str(tmp_path / "token")

    done = loadtest("baseline", "--out", str(tmp_path / "run"), LOADTEST_TOKEN_FILE=missing)

    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"loadtest: LOADTEST_TOKEN_FILE: {missing} cannot be read")
    assert not (tmp_path / "run").exists()


def test_users_that_end_before_the_run_are_reported(cluster: Cluster, tmp_path: Path) -> None:
    done = loadtest("baseline", "--target", cluster.url, "--out", str(tmp_path), LOADTEST_PAUSE_SECONDS="not a number")

    assert done.code == 2, done
    assert done.err.startswith("loadtest: users did not start")


def test_a_report_without_a_run_is_refused(tmp_path: Path) -> None:
    done = loadtest("report", str(tmp_path))

    assert (done.code, done.out) == (2, "")
    assert done.err == f"loadtest: no run in {tmp_path}: run.json is missing\n"


def test_a_report_is_written_again(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"scenario": "baseline", "seconds": 1}))

    done = loadtest("report", str(tmp_path))

    assert done.code == 0, done
    assert done.out == f"{tmp_path / 'report.html'}\n"
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-scenario"],
        ["baseline", "--seconds", "0"],
        ["baseline", "--seconds", "inf"],
        ["baseline", "--users", "-1"],
        ["baseline", "--metrics", "r1"],
        ["baseline", "--target", "http://127.0.0.1:1", "--peer", "sdk"],
        ["rolling-upgrade", "--peer", "sdk"],
        [],
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err
