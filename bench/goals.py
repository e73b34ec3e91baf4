"""The goals: the budgets, in the order of the report, and how they are judged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from bench.tables import table


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal for one measurement.

    Attributes:
        what: the measurement.
        bound: the limit, in `unit`.
        unit: the unit of the bound, with the space before it.
        at_least: whether the bound is a minimum; otherwise it is a maximum.
    """

    what: str
    bound: float
    unit: str = " ×"
    at_least: bool = False

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bound:g}{self.unit}"

    def judge(self, value: float, measured: str | None = None) -> Verdict:
        """Compare a value with the bound; `measured` describes the value in more detail."""
        met = value >= self.bound if self.at_least else value <= self.bound
        return Verdict(self, measured or f"{value:.2f}{self.unit}", met)


class Verdict(NamedTuple):
    """The measurement for a goal, and whether it is met; None without a measurement."""

    goal: Goal
    measured: str
    met: bool | None


ECHO_BESIDE_RAW: Final = Goal("requests/s of an echo `tools/call`, compared with raw ASGI", 0.4, at_least=True)
ECHO_BESIDE_SDK: Final = Goal("requests/s of an echo `tools/call`, compared with the SDK", 4, at_least=True)
FIRST_BESIDE_SDK: Final = Goal("requests/s of a first leg, compared with the SDK", 4, at_least=True)
SCHEMA_BESIDE_MODEL: Final = Goal(
    "requests/s of a first leg whose form is a JSON Schema, compared with one from a model", 0.6, at_least=True
)
RETRY_BESIDE_SDK: Final = Goal("requests/s of a retry leg, compared with the SDK", 4, at_least=True)
P99_BESIDE_RAW: Final = Goal("99th percentile of latency, compared with raw ASGI", 4)
P999: Final = Goal("99.9th percentile of latency", 10, " ms")
CIPHER_SHARE: Final = Goal("cipher with its key schedule, share of a leg's CPU time", 5, " %")
CODEC_1_KIB: Final = Goal("whole token codec, both ways, 1 KiB", 10, " µs")
CODEC_64_KIB: Final = Goal("whole token codec, both ways, 64 KiB", 150, " µs")
REPLAY_EXPONENT: Final = Goal("replay of n answers: exponent of n (1 is linear)", 1.1, "")
REPLAY_A_KEY: Final = Goal("replay of n answers: CPU time of one", 10, " µs")
MANY_TOOLS: Final = Goal("requests/s of an echo with 1,000 tools, compared with three", 0.95, at_least=True)
RESIDENT: Final = Goal("memory of a replica under all these calls", 90, " MB")
LEGS_FLAT: Final = Goal("memory of a replica over 1,000,000 legs: growth in the second half", 1, " %")
STREAM: Final = Goal("memory of an open stream", 40, " KiB")
TASKS_BESIDE_FASTMCP: Final = Goal("tasks/s, create → completed, compared with fastmcp", 8, at_least=True)
TASKS_FLAT: Final = Goal("CPU time of a task's costliest step with a large store, compared with a small one", 1.25)

BUDGETS: Final = (
    ECHO_BESIDE_RAW,
    ECHO_BESIDE_SDK,
    FIRST_BESIDE_SDK,
    SCHEMA_BESIDE_MODEL,
    RETRY_BESIDE_SDK,
    P99_BESIDE_RAW,
    P999,
    CIPHER_SHARE,
    CODEC_1_KIB,
    CODEC_64_KIB,
    REPLAY_EXPONENT,
    REPLAY_A_KEY,
    MANY_TOOLS,
    RESIDENT,
    LEGS_FLAT,
    STREAM,
    TASKS_BESIDE_FASTMCP,
    TASKS_FLAT,
)
"""Everything that the gateway promises about its speed and size."""


def budgets(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return every budget in order, with its verdict from `verdicts` if there is one."""
    by_goal = {verdict.goal: verdict for verdict in verdicts}
    return [by_goal.get(goal, Verdict(goal, "not measured", None)) for goal in BUDGETS]


def others(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return the verdicts on goals that are not budgets."""
    return [verdict for verdict in verdicts if verdict.goal not in BUDGETS]


def goals_table(verdicts: Sequence[Verdict]) -> list[str]:
    """Return verdicts as a Markdown table."""
    rows = ((verdict.goal.what, str(verdict.goal), verdict.measured, _word(verdict)) for verdict in verdicts)
    return table(("what", "goal", "measured", "met"), rows, texts=4)


def goals_document(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return verdicts for programs."""
    return [
        {"what": verdict.goal.what, "goal": str(verdict.goal), "measured": verdict.measured, "met": verdict.met}
        for verdict in verdicts
    ]


def _word(verdict: Verdict) -> str:
    return {True: "yes", False: "NO", None: ""}[verdict.met]
