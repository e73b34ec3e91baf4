"""The report of the benchmark: a section for each subject, verdicts, files."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.goals import Verdict, budgets, goals_document, goals_table, others
from bench.tables import table

DISTURBED_SERVER = 0.9
"""Below this share of its core, a server was not the limit: other programs or the load were."""
CPU_INFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class Section:
    """The results of one subject.

    Attributes:
        measured: the part of ours that was measured.
        markdown: the text for people.
        document: all its numbers, for programs.
        verdicts: the verdicts on its goals.
        wrong: the wrong answers; a single one makes the speed worthless.
    """

    name: str
    measured: str
    markdown: str
    document: dict[str, Any]
    verdicts: Sequence[Verdict] = ()
    wrong: Sequence[str] = field(default=())

    def text(self) -> str:
        """Return the text for people, with the verdicts on goals that are not budgets."""
        own = others(self.verdicts)
        return self.markdown + ("\n" + "\n".join(goals_table(own)) + "\n" if own else "")


@dataclass(frozen=True, slots=True)
class Report:
    """The whole report.

    Attributes:
        code: the kind of our code that was measured.
        command: the command that made the report.
        elsewhere: verdicts of measurements that take too long to repeat each time.
    """

    code: str
    command: str
    sections: Sequence[Section]
    elsewhere: Sequence[Verdict] = ()

    @property
    def budgets(self) -> list[Verdict]:
        """Every budget, whether it was measured or not. A subject with wrong answers does not count."""
        right = [section for section in self.sections if not section.wrong]
        return budgets([*self.elsewhere, *(verdict for section in right for verdict in section.verdicts)])

    def goals(self) -> str:
        """Return the budgets for people, with the code and the machine."""
        lines = [*goals_table(self.budgets), "", f"`{self.command}`, the gateway {self.code}, on {machine()}."]
        return "\n".join(lines) + "\n"

    def markdown(self) -> str:
        """Return the whole report for people."""
        rows = ((section.name, f"{self.code}: {section.measured}") for section in self.sections)
        subjects = "\n".join(table(("subject", "measured part of the gateway"), rows, texts=2))
        parts = ["# Benchmark", "## Goals", self.goals() + "\n" + subjects, *(part.text() for part in self.sections)]
        return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"

    def document(self) -> dict[str, Any]:
        """Return the whole report for programs."""
        return {
            "code": self.code,
            "command": self.command,
            "machine": machine(),
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "goals": goals_document(self.budgets),
        } | {
            section.name: {
                **section.document,
                "measured": section.measured,
                "goals": goals_document(section.verdicts),
                "wrong": list(section.wrong[:100]),
            }
            for section in self.sections
        }

    def write(self, folder: Path) -> None:
        """Write `bench.md`, `bench.json`, and the budgets alone as `goals.md`, to `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "bench.md").write_text(self.markdown())
        (folder / "goals.md").write_text(self.goals())
        (folder / "bench.json").write_text(json.dumps(self.document(), indent=2) + "\n")


def machine() -> str:
    """Describe the machine: its processor, the cores that this process may use, and the relevant versions."""
    model = re.search(r"^model name\s*: (.+)$", CPU_INFO.read_text(), re.MULTILINE) if CPU_INFO.exists() else None
    processor = model[1].strip() if model else platform.machine()
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores of {processor}, {platform.system()}, Python {platform.python_version()}"
