"""The report is written for people and for programs, and judges every budget once, in one order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import ours
from bench.__main__ import command
from bench.goals import BUDGETS, CODEC_1_KIB, ECHO_BESIDE_RAW, LEGS_FLAT, STREAM, Goal, goals_table
from bench.memory import earlier
from bench.report import Report, Section
from bench.servers import TOP
from bench.tables import table

FAST, LEAN = Goal("speed", 8, at_least=True), Goal("size", 3, " KiB")


def test_numbers_stand_to_the_right_and_texts_to_the_left() -> None:
    assert table(("what", "how", "ms"), [("a", "b", "1"), ("c", "d", "22")], texts=2) == [
        "| what | how | ms |",
        "|---|---|---:|",
        "| a | b | 1 |",
        "| c | d | 22 |",
    ]


def test_a_goal_may_be_just_met_and_says_what_was_measured() -> None:
    assert goals_table([FAST.judge(8), FAST.judge(7.9), LEAN.judge(3), LEAN.judge(3.1, "3.1 to 3.2 KiB")])[2:] == [
        "| speed | ≥ 8 × | 8.00 × | yes |",
        "| speed | ≥ 8 × | 7.90 × | NO |",
        "| size | ≤ 3 KiB | 3.00 KiB | yes |",
        "| size | ≤ 3 KiB | 3.1 to 3.2 KiB | NO |",
    ]


def report(*sections: Section) -> Report:
    return Report("compiled", "make bench", sections, [LEGS_FLAT.judge(0.2)])


PARTS = Section("parts", "modules", "## Parts\n", {"rate": 1}, [CODEC_1_KIB.judge(11), FAST.judge(9)])
CALLS = Section("calls", "a replica", "## Calls\n", {"rate": 2}, [STREAM.judge(20), ECHO_BESIDE_RAW.judge(0.5)])


def test_every_budget_stands_in_one_table_in_one_order_whatever_was_measured_first() -> None:
    judged = report(PARTS, CALLS).budgets
    assert [verdict.goal for verdict in judged] == list(BUDGETS)
    met = {verdict.goal: verdict.met for verdict in judged if verdict.met is not None}
    assert met == {ECHO_BESIDE_RAW: True, CODEC_1_KIB: False, LEGS_FLAT: True, STREAM: True}
    assert {verdict.measured for verdict in judged if verdict.met is None} == {"not measured"}


def test_a_subject_that_answered_wrongly_reaches_no_budget() -> None:
    wrong = Section("calls", "a replica", "", {}, [ECHO_BESIDE_RAW.judge(9)], ["off by one"])
    assert report(wrong).budgets[0].measured == "not measured"


def test_goals_that_are_not_budgets_are_only_with_their_subject() -> None:
    assert PARTS.text() == "\n".join(["## Parts", "", *goals_table([FAST.judge(9)])]) + "\n"
    assert CALLS.text() == "## Calls\n"


def test_the_report_says_what_was_measured_and_how_and_is_written_for_programs_too(tmp_path: Path) -> None:
    written = report(PARTS, CALLS)
    written.write(tmp_path / "reports")
    markdown = (tmp_path / "reports" / "bench.md").read_text()
    assert [line for line in markdown.splitlines() if line.startswith("#")] == [
        "# Benchmark",
        "## Goals",
        "## Parts",
        "## Calls",
    ]
    assert "| calls | compiled: a replica |" in markdown
    assert (tmp_path / "reports" / "goals.md").read_text() in markdown
    assert "`make bench`, the gateway compiled, on" in markdown
    document = json.loads((tmp_path / "reports" / "bench.json").read_text())
    assert [goal["what"] for goal in document["goals"]] == [goal.what for goal in BUDGETS]
    assert document["code"] == "compiled"
    assert document["calls"]["rate"] == 2
    assert document["parts"]["goals"][1] == {"what": "speed", "goal": "≥ 8 ×", "measured": "9.00 ×", "met": True}


def test_the_command_can_be_typed_again() -> None:
    assert command([]) == "make bench"
    assert command(["--only", "calls"]) == 'make bench BENCH="--only calls"'


@pytest.mark.parametrize(
    ("interpreted", "compiled", "expected"),
    [
        pytest.param(False, True, None, id="compiled code"),
        pytest.param(True, False, None, id="the source tree, as asked for"),
        pytest.param(False, False, "not compiled: run `make bench`", id="the source tree, taken for compiled code"),
        pytest.param(True, True, "run --interpreted in the source tree", id="compiled code, taken for the source tree"),
    ],
)
def test_compiled_code_and_the_source_tree_are_never_taken_for_each_other(
    interpreted: bool, compiled: bool, expected: str | None
) -> None:
    found = ours.problem(TOP, interpreted=interpreted, compiled=compiled)
    assert found == expected or (expected is not None and expected in (found or ""))


def test_this_process_measures_the_same_code_as_those_that_it_starts(tmp_path: Path) -> None:
    assert "would import that of" in (ours.problem(tmp_path, interpreted=True) or "")


@pytest.mark.parametrize(
    ("legs", "code", "expected"),
    [
        pytest.param(1_000_000, ours.kind(), ["+0.0 %, by `python -m bench.memory`"], id="long enough"),
        pytest.param(10_000, ours.kind(), [], id="too short"),
        pytest.param(1_000_000, "another", [], id="of other code"),
    ],
)
def test_what_was_seen_of_the_memory_counts_if_it_was_of_the_same_code_and_long_enough(
    tmp_path: Path, legs: int, code: str, expected: list[str]
) -> None:
    assert earlier(tmp_path) == []
    seen = {"code": code, "legs": legs, "mib": {f"a replica, {legs:,} legs": [60.0] * 10}}
    (tmp_path / "memory.json").write_text(json.dumps(seen))
    assert [verdict.measured for verdict in earlier(tmp_path)] == expected
