"""What is to be reached: the budgets, in the order in which they are reported, and how they are judged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from bench.tables import table


@dataclass(frozen=True, slots=True)
class Goal:
    """Something to be reached.

    Attributes:
        what: is measured.
        bound: that it must keep, counted in `unit`.
        unit: of the bound, with the blank before it.
        at_least: whether the bound is the least allowed; otherwise it is the most.
    """

    what: str
    bound: float
    unit: str = " ×"
    at_least: bool = False

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bound:g}{self.unit}"

    def judge(self, value: float, measured: str | None = None) -> Verdict:
        """Compare a value with the bound; `measured` tells more than the value alone."""
        met = value >= self.bound if self.at_least else value <= self.bound
        return Verdict(self, measured or f"{value:.2f}{self.unit}", met)


class Verdict(NamedTuple):
    """What was measured for a goal, and whether that reaches it; None where nothing was measured."""

    goal: Goal
    measured: str
    met: bool | None


ECHO_BESIDE_RAW: Final = Goal("requests/s of an echo `tools/call`, beside raw ASGI", 0.4, at_least=True)
ECHO_BESIDE_SDK: Final = Goal("requests/s of an echo `tools/call`, beside the SDK", 4, at_least=True)
FIRST_BESIDE_SDK: Final = Goal("requests/s of a first leg, beside the SDK", 4, at_least=True)
SCHEMA_BESIDE_MODEL: Final = Goal(
    "requests/s of a first leg whose form is a JSON Schema, beside one from a model", 0.6, at_least=True
)
RETRY_BESIDE_SDK: Final = Goal("requests/s of a retry leg, beside the SDK", 4, at_least=True)
P99_BESIDE_RAW: Final = Goal("99th percentile of latency, beside raw ASGI", 4)
P999: Final = Goal("99.9th percentile of latency", 10, " ms")
CIPHER_SHARE: Final = Goal("cipher with its key schedule, share of a leg's CPU time", 5, " %")
CODEC_1_KIB: Final = Goal("whole token codec, both ways, 1 KiB", 10, " µs")
CODEC_64_KIB: Final = Goal("whole token codec, both ways, 64 KiB", 150, " µs")
REPLAY_EXPONENT: Final = Goal("replay of n answers: exponent of n (1 is linear)", 1.1, "")
REPLAY_A_KEY: Final = Goal("replay of n answers: CPU time of one", 10, " µs")
MANY_TOOLS: Final = Goal("requests/s of an echo with 1,000 tools, beside that with three", 0.95, at_least=True)
RESIDENT: Final = Goal("memory of a replica under all these calls", 90, " MB")
LEGS_FLAT: Final = Goal("memory of a replica over 1,000,000 legs: growth in the second half", 1, " %")
STREAM: Final = Goal("memory of an open stream", 40, " KiB")
TASKS_BESIDE_FASTMCP: Final = Goal("tasks/s, create → completed, beside fastmcp", 8, at_least=True)
TASKS_FLAT: Final = Goal("CPU time of a task's dearest step with a large store, beside a small one", 1.25)

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
"""All that the gateway promises of its speed and size."""


def budgets(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Every budget in its order, with its verdict among `verdicts` or none."""
    by_goal = {verdict.goal: verdict for verdict in verdicts}
    return [by_goal.get(goal, Verdict(goal, "not measured", None)) for goal in BUDGETS]


def others(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """The verdicts on goals that are no budgets."""
    return [verdict for verdict in verdicts if verdict.goal not in BUDGETS]


def goals_table(verdicts: Sequence[Verdict]) -> list[str]:
    """Verdicts as a Markdown table."""
    rows = ((verdict.goal.what, str(verdict.goal), verdict.measured, _word(verdict)) for verdict in verdicts)
    return table(("what", "goal", "measured", "met"), rows, texts=4)


def goals_document(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Verdicts for programs."""
    return [
        {"what": verdict.goal.what, "goal": str(verdict.goal), "measured": verdict.measured, "met": verdict.met}
        for verdict in verdicts
    ]


def _word(verdict: Verdict) -> str:
    return {True: "yes", False: "NO", None: ""}[verdict.met]
