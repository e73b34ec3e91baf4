"""Pure: how a leg ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from gateway.engine.questions import Question


class LegTimedOut(Exception):
    """The leg exceeded its time limit of `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the leg did not finish within {seconds:g} seconds")
        self.seconds = seconds


class LegCrashed(Exception):
    """The function raised what would end the task or process (`SystemExit`, …); `__cause__` is that error."""


class Completed(msgspec.Struct, frozen=True):
    """The function returned."""

    value: Any


class NeedsInput(msgspec.Struct, frozen=True):
    """The function asked something that the journal cannot answer. Keys are the author's, in the order of asking."""

    questions: Mapping[str, Question]


class Failed(msgspec.Struct, frozen=True):
    """The function raised, broke a rule, asked what the client does not support, or timed out."""

    error: Exception


class Detached(msgspec.Struct, frozen=True):
    """The function wants to continue as a task; its journal moves to the store."""


class Shed(msgspec.Struct, frozen=True):
    """The leg ended early at a checkpoint, so another process can continue."""


class NotKept(msgspec.Struct, frozen=True):
    """The carrier could not store what the leg learned; this leg must have no further effect."""

    error: Exception


Outcome: TypeAlias = Completed | NeedsInput | Failed | Detached | Shed | NotKept
