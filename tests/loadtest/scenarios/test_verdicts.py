"""Every scenario passes with this gateway, and fails with one that is broken on purpose.

They take minutes and need the machine for themselves: `make loadtest` runs them, `make test` and `make slow` do not.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.runtime.compilation import is_compiled
from loadtest.cluster import REPOSITORY
from loadtest.rates import whole
from loadtest.rawdata import read
from loadtest.run import Options, perform
from loadtest.scenario import NO_ANSWER_WRONG, RESUMED
from loadtest.scenarios import SCENARIOS

pytestmark = pytest.mark.timeout(400)

TWINS = {
    "baseline": ("journal_dropped", {"asked_again"}),
    "load-shedding": ("admission_off", {"p99_ratio"}),
    "rolling-upgrade": ("drain_off", {"legs_served"}),
    "key-rotation": ("old_keys_dropped", {"calls_failed", "states_rejected"}),
    "replica-kill": ("keys_not_shared", {"calls_failed", "states_rejected"}),
    "worker-kill": ("lost_tasks_left", {"tasks_redelivered"}),
    "redis-outage": ("calls_need_redis", {"legs_without_store"}),
    "scale-out": ("only_the_first_serves", {"goodput_ratio"}),
    "soak": ("nothing_freed", {"memory_growth"}),
}
"""For each scenario, the module of `tests.loadtest.broken` that it must detect, and the measures that show it."""


def run(scenario: str, directory: Path, *options: str) -> tuple[int, str, dict[str, Any]]:
    """Run a scenario briefly; return the exit code, what was printed, and `run.json`."""
    command = [sys.executable, "-m", "loadtest", scenario, "--short", "--out", str(directory), *options]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    about = directory / "run.json"
    return done.returncode, done.stdout + done.stderr, json.loads(about.read_text()) if about.exists() else {}


def test_every_scenario_has_a_twin() -> None:
    assert TWINS.keys() == SCENARIOS.keys()


SLOWEST = {"rolling-upgrade": 10, "load-shedding": 20, "scale-out": 5}
"""Calls per second that a short run finishes on any machine: at most a fifth of the rate on two cores."""


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_it_passes(scenario: str, tmp_path: Path) -> None:
    code, printed, about = run(scenario, tmp_path)

    assert code == 0, printed
    assert about["verdict"]["passed"] is True
    assert whole(read(tmp_path)) >= SLOWEST.get(scenario, 0)
    assert {path.name for path in tmp_path.iterdir()} >= {"report.html", "timeline.png", "latency.png", "calls.jsonl"}


@pytest.mark.skipif(is_compiled(), reason="compiled code cannot be broken from outside: `make ci` breaks the sources")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_it_fails_with_its_broken_twin(scenario: str, tmp_path: Path) -> None:
    module, shown_by = TWINS[scenario]

    code, printed, about = run(scenario, tmp_path, "--module", f"tests.loadtest.broken.{module}")

    assert code == 1, printed
    reasons = zip(about["bounds"], about["verdict"]["reasons"], strict=True)
    assert {bound["measure"] for bound, reason in reasons if not reason["passed"]} >= shown_by, printed


def test_segments_that_are_lost_or_doubled_after_a_break_are_found_out(tmp_path: Path) -> None:
    """Every scenario with streaming users and a worker detects it; this one has no other users, so it is faster."""
    scenario = replace(
        SCENARIOS["soak"],
        users={"streaming": 8},
        bounds=(RESUMED, NO_ANSWER_WRONG),
        cluster_bounds=(),
        user_environ={"LOCUST_TAGS": "segments", "LOADTEST_BREAK_PROBABILITY": "1"},
    )

    verdict = perform(scenario, Options(tmp_path, seconds=1, module="tests.loadtest.broken.resumed_elsewhere"))

    assert [reason.passed for reason in verdict.reasons] == [True, False]
