"""Pure: how a leg ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from gateway.engine.questions import Question


class LegTimedOut(Exception):
    """The leg outlived its time limit.

    Attributes:
        seconds: the limit.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the leg did not finish within {seconds:g} seconds")
        self.seconds = seconds


class LegCrashed(Exception):
    """The function raised what would end the task or the process (`SystemExit`, …); `__cause__` is that error."""


@dataclass(frozen=True, slots=True)
class Completed:
    """The function returned."""

    value: Any


@dataclass(frozen=True, slots=True)
class InputRequired:
    """The function asked something that the journal does not answer. Keys are the author's, in asking order."""

    questions: Mapping[str, Question]


@dataclass(frozen=True, slots=True)
class Failed:
    """The function raised, broke a rule, asked what the client cannot answer, or outlived its time."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Detached:
    """The function wants to go on as a task; its journal moves to the store."""


@dataclass(frozen=True, slots=True)
class Shed:
    """The leg ended early at a checkpoint, so that another process goes on."""


@dataclass(frozen=True, slots=True)
class NotKept:
    """The carrier could not keep what the leg learned; nothing more may come of this leg."""

    error: Exception


Outcome: TypeAlias = Completed | InputRequired | Failed | Detached | Shed | NotKept
