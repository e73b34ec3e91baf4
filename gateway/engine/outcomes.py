"""Pure: how a leg ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

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


class Completed(msgspec.Struct, frozen=True):
    """The function returned."""

    value: Any


class InputRequired(msgspec.Struct, frozen=True):
    """The function asked something that the journal does not answer. Keys are the author's, in asking order."""

    questions: Mapping[str, Question]


class Failed(msgspec.Struct, frozen=True):
    """The function raised, broke a rule, asked what the client cannot answer, or outlived its time."""

    error: Exception


class Detached(msgspec.Struct, frozen=True):
    """The function wants to go on as a task; its journal moves to the store."""


class Shed(msgspec.Struct, frozen=True):
    """The leg ended early at a checkpoint, so that another process goes on."""


class NotKept(msgspec.Struct, frozen=True):
    """The carrier could not keep what the leg learned; nothing more may come of this leg."""

    error: Exception


Outcome: TypeAlias = Completed | InputRequired | Failed | Detached | Shed | NotKept
