"""The judge of conformance is stricter than the suite: a warning counts, and so does a check that never ran."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import run
from tests.conformance.run import (
    CORE,
    DIRECTLY,
    HANDSHAKE,
    KEPT_NOWHERE,
    PROGRAM_THROUGH,
    SESSION_DIRECTLY,
    SESSION_THROUGH,
    SESSIONS,
    TASKS,
    THROUGH,
    UNWRITTEN,
    Leg,
    Verdict,
    judge,
    judge_log,
    main,
    plan,
    read_results,
    show,
)

ONE = Leg("one", [], replicas=1)
TWO = Leg("two", [], replicas=2)
SESSION = Leg("session", [], replicas=2, version=HANDSHAKE)


def check(status: str, name: str = "a-check", message: str | None = None) -> dict[str, Any]:
    return {"id": name, "status": status, "description": "what it looks at", "errorMessage": message}


def test_a_scenario_is_good_when_each_of_its_checks_passed() -> None:
    verdict = judge("caching", TWO, [check("SUCCESS")] * 8 + [check("INFO")])
    assert (verdict.passed, verdict.problems) == (8, [])


@pytest.mark.parametrize("status", ["FAILURE", "WARNING", "SKIPPED"])
def test_whatever_else_the_suite_says_is_a_problem_with_its_reason(status: str) -> None:
    verdict = judge("prompts-list", ONE, [check("SUCCESS"), check(status, message="no\nluck")])
    assert verdict.problems == [f"{status} a-check: no luck"]


def test_a_scenario_without_checks_does_not_pass() -> None:
    assert judge("tools-list", TWO, []).problems == ["MISSING 4 of its 4 checks did not run"]
    assert judge("tools-list", SESSION, []).problems == ["MISSING 3 of its 3 checks did not run"]


def test_list_changes_that_do_not_reach_the_other_replica_are_a_problem() -> None:
    name = "sep-2575-server-sends-tools-list-changed-on-subscription"
    warning = check("WARNING", name, "Mutated the list but no notifications/tools/list_changed arrived on the stream.")
    verdict = judge("server-stateless", TWO, [check("SUCCESS")] * (CORE["server-stateless"] - 1) + [warning])
    assert (verdict.excused, len(verdict.problems)) == ([], 1)


def test_a_check_that_the_suite_always_skips_may_be_skipped_but_not_for_another_reason() -> None:
    ((name, words),) = UNWRITTEN.items()
    always, once = (
        judge(name, TWO, [check("SKIPPED", name, message)]) for message in (f"Skipped: {words}.", "no task")
    )
    assert (len(always.excused), always.problems) == (1, [])
    assert (once.excused, once.problems) == ([], [f"SKIPPED {name}: no task"])


@pytest.mark.parametrize("name", KEPT_NOWHERE)
def test_what_takes_storage_is_excused_with_a_handshake_by_its_exact_words(name: str) -> None:
    status, words = KEPT_NOWHERE[name]
    kind = "SKIPPED" if status == "WARNING" else "WARNING"
    rows = [check(status, name, words), check(status, name, f"{words} And more."), check(kind, name, words)]
    excused = [judge("server-sse-polling", SESSION, [row, row]).problems == [] for row in rows]
    assert excused == [True, False, False]
    assert judge("tools-list", TWO, rows[:1]).excused == []


def test_the_reason_of_a_check_may_be_in_its_details() -> None:
    row = {**check("SKIPPED"), "details": {"message": "there was no time"}}
    assert judge("server-sse-polling", SESSION, [row, row]).problems == ["SKIPPED a-check: there was no time"] * 2


def test_every_scenario_has_its_leg_and_tasks_have_a_worker() -> None:
    two, tasks, session, directly, through, *sessions = plan(None)
    assert (two.scenarios, two.replicas, two.workers) == ([None], 2, 0)
    assert (tasks.scenarios, tasks.replicas, tasks.workers) == (list(TASKS), 2, 1)
    assert (session.scenarios, session.replicas, session.version) == ([None], 2, HANDSHAKE)
    assert (directly.scenarios, directly.replicas, directly.upstream) == ([None], 0, "stateless")
    assert (through.scenarios, through.replicas, through.upstream) == ([None], 2, "stateless")
    assert [(leg.scenarios, leg.replicas, leg.upstream) for leg in sessions] == [
        ([None], replicas, upstream) for replicas, upstream in ((0, "session"), (2, "session"), (2, "program"))
    ]
    assert {leg.version for leg in sessions} == {HANDSHAKE}


@pytest.mark.parametrize("scenario", sorted({*CORE, *TASKS, *SESSIONS}))
def test_one_scenario_runs_where_it_runs_among_all(scenario: str) -> None:
    legs = plan(scenario)
    where = {"2-replicas": CORE, "tasks": TASKS, "handshake": SESSIONS, DIRECTLY: CORE, THROUGH: CORE}
    where |= dict.fromkeys((SESSION_DIRECTLY, SESSION_THROUGH, PROGRAM_THROUGH), SESSIONS)
    assert [(leg.name, leg.scenarios) for leg in legs] == [
        (name, [scenario]) for name, scenarios in where.items() if scenario in scenarios
    ]


def test_a_traceback_in_the_log_is_a_problem() -> None:
    leg, *_ = plan("caching")
    assert judge_log(leg, "[r1] 2026-11-21 info serving\n") == []
    (verdict,) = judge_log(leg, "[r1] error request failed\n[r1] Traceback (most recent call last):\n")
    assert verdict.problems == ["TRACEBACK in reports/conformance/2-replicas"]


def test_results_are_read_by_scenario(tmp_path: Path) -> None:
    folder = tmp_path / "server-tools-call-image-2026-11-21T22-29-20-799Z"
    folder.mkdir()
    (folder / "checks.json").write_text(json.dumps([check("SUCCESS")]))
    assert read_results(tmp_path) == {"tools-call-image": [check("SUCCESS")]}


def test_the_table_has_a_line_a_scenario_and_totals() -> None:
    good = Verdict("caching", TWO, passed=8, excused=["a reason"] * 2)
    bad = Verdict("tools-list", SESSION, passed=1, problems=["FAILURE a: no", "WARNING b: well", "SKIPPED c: not seen"])
    lines = show([good, bad]).splitlines()
    assert lines[1].split() == ["caching", "2026-07-28", "2", "8", "0", "0", "0", "2", "excused:", "a", "reason"]
    assert lines[2].split() == ["tools-list", "2025-11-25", "2", "1", "1", "1", "1"]
    assert lines[3:6] == ["    FAILURE a: no", "    WARNING b: well", "    SKIPPED c: not seen"]
    assert lines[-1] == "9 checks passed, 1 failed, 1 warnings, 1 skipped"


def test_an_upstream_has_a_column_for_itself_and_one_for_the_gateway_in_front_of_it() -> None:
    directly = Leg(DIRECTLY, [], replicas=0, upstream="stateless")
    through = Leg(THROUGH, [], replicas=2, upstream="stateless")
    lines = show(
        [
            Verdict("tasks-lifecycle", ONE, passed=9),
            Verdict("caching", directly, passed=8),
            Verdict("caching", through, passed=7, problems=["FAILURE a: no"]),
        ]
    ).splitlines()
    assert len(lines) == 8
    assert lines[3].split() == ["scenario", "of", "2026-07-28", "directly", "through", "2", "replicas"]
    assert lines[4].split() == ["caching", "8", "7"]
    assert lines[5] == "    upstream-through: FAILURE a: no"
    assert lines[-1] == "24 checks passed, 1 failed, 0 warnings"


@pytest.mark.parametrize(("problems", "code"), [([], 0), (["WARNING b: well"], 1)])
def test_the_exit_code_tells_whether_all_passed(
    problems: list[str], code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(run, "run_leg", lambda leg: [Verdict("caching", leg, 8, problems)])
    assert main(["--scenario", "caching"]) == code


def test_a_suite_that_is_not_installed_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "PEERS", tmp_path)

    def run_leg(leg: Leg) -> list[Verdict]:
        return run.run_suite("http://127.0.0.1:1/mcp", leg, leg.scenarios[0], tmp_path)

    monkeypatch.setattr(run, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(run, "run_leg", run_leg)
    assert main([]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "conformance: the suite is not installed: start it with `make conformance`"
    ]
