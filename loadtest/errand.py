"""A user's errand: the call of a tool and its expected outcome; and the error that ends a call without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from loadtest.wire import Answer

Check: TypeAlias = Callable[[Answer], str | None]
"""Checks a final answer; returns what is wrong with it, or None."""


@dataclass(frozen=True)
class Errand:
    """The call of a tool that a user wants done, and the check of its result.

    Attributes:
        answers: the user's answers, by the key of the question.
        check: checks the final answer.
        think: returns how many seconds the user thinks before answering.
        tasks: whether it may become a task.
        listens: whether to listen to a task rather than poll it.
        progress: whether to ask for progress.
        breaks: if set, asks for the result in segments; returns after each batch whether to break the connection.
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
    """A call cannot continue.

    Attributes:
        outcome: failed or refused.
    """

    def __init__(self, reason: str, outcome: str = "failed") -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason
