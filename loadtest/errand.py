"""What a user wants of a tool, and how a call ends that does not get it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from loadtest.wire import Answer

Check: TypeAlias = Callable[[Answer], str | None]
"""Looks at a final answer; returns what is wrong with it, or None."""


@dataclass(frozen=True)
class Errand:
    """What a user wants, and how to tell that it was done.

    Attributes:
        tool: what is called.
        arguments: with what.
        answers: what the user fills in, by the key of the question.
        check: looks at the final answer.
        think: returns how many seconds the user thinks before answering.
        tasks: whether it may become a task.
        listens: whether a task is listened to; otherwise it is asked about.
        progress: whether to be told how far it is.
        breaks: asks for the result in segments, and tells after each lot of them whether to break the connection.
    """

    tool: str
    arguments: Mapping[str, Any]
    check: Check
    answers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    think: Callable[[], float] = lambda: 0.0
    tasks: bool = False
    listens: bool = False
    progress: bool = False
    breaks: Callable[[], bool] | None = None


class CallEndedError(Exception):
    """A call cannot go on.

    Attributes:
        outcome: of the call: failed or refused.
        reason: why.
    """

    def __init__(self, reason: str, outcome: str = "failed") -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason
