"""What the subjects of the benchmark have in common when they report: a section each, goals, verdicts, files."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

DISTURBED_SERVER = 0.9
"""Below this share of its core, a server was not the limit: something else ran on this machine, or the load was it."""


class Goal(NamedTuple):
    """Something that was to be reached, what was measured, and whether that reaches it."""

    what: str
    measured: str
    passed: bool

    @property
    def verdict(self) -> str:
        """In one word."""
        return "PASSED" if self.passed else "FAILED"


@dataclass(frozen=True, slots=True)
class Section:
    """What one subject came to.

    Attributes:
        name: of the subject.
        markdown: for people.
        document: all its numbers, for programs.
        wrong: what was wrong with answers; one is enough to make the speed worthless.
    """

    name: str
    markdown: str
    document: dict[str, Any]
    wrong: Sequence[str] = field(default=())


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int = 1) -> list[str]:
    """A Markdown table whose first `texts` columns are text and whose others are numbers."""
    marks = ["---"] * texts + ["---:"] * (len(head) - texts)
    return [
        "| " + " | ".join(head) + " |",
        "|" + "|".join(marks) + "|",
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def goals_table(goals: Sequence[Goal]) -> list[str]:
    """Goals as a Markdown table."""
    return table(("goal", "measured", "verdict"), ((goal.what, goal.measured, goal.verdict) for goal in goals), texts=3)


def goals_document(goals: Sequence[Goal]) -> list[dict[str, Any]]:
    """Goals for programs."""
    return [goal._asdict() for goal in goals]


def markdown(sections: Sequence[Section]) -> str:
    """The whole report for people."""
    return "# Benchmark\n\n" + "\n".join(section.markdown for section in sections)


def write(folder: Path, sections: Sequence[Section]) -> None:
    """Write `bench.md` and `bench.json` into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.md").write_text(markdown(sections))
    document: dict[str, Any] = {"python": platform.python_version(), "cores": os.cpu_count()}
    document |= {section.name: {**section.document, "wrong": list(section.wrong[:100])} for section in sections}
    (folder / "bench.json").write_text(json.dumps(document, indent=2) + "\n")
