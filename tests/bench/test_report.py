"""The benchmark's report is written for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

from bench.report import Goal, Section, goals_table, markdown, table, write


def test_numbers_stand_to_the_right_and_texts_to_the_left() -> None:
    assert table(("what", "how", "ms"), [("a", "b", "1"), ("c", "d", "22")], texts=2) == [
        "| what | how | ms |",
        "|---|---|---:|",
        "| a | b | 1 |",
        "| c | d | 22 |",
    ]


def test_each_goal_is_shown_with_what_was_measured_and_its_verdict() -> None:
    goals = [Goal("at least 8", "9", passed=True), Goal("at most 3", "4", passed=False)]
    assert goals_table(goals)[2:] == ["| at least 8 | 9 | PASSED |", "| at most 3 | 4 | FAILED |"]


def test_sections_follow_each_other_and_their_numbers_are_written_as_json(tmp_path: Path) -> None:
    sections = [
        Section("calls", "## Calls\n", {"rate": 1}, ["off by one"]),
        Section("tasks", "## Tasks\n", {"rate": 2}),
    ]
    write(tmp_path / "reports", sections)
    assert (tmp_path / "reports" / "bench.md").read_text() == markdown(sections)
    assert markdown(sections).splitlines() == ["# Benchmark", "", "## Calls", "", "## Tasks"]
    document = json.loads((tmp_path / "reports" / "bench.json").read_text())
    assert document["calls"] == {"rate": 1, "wrong": ["off by one"]}
    assert document["tasks"] == {"rate": 2, "wrong": []}
