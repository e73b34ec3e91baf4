"""What happened in a call that a test ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeAlias

from typing_extensions import TypeVar

from gateway.engine.questions import Question

T = TypeVar("T", default=Any)

Ended: TypeAlias = Literal["returned", "asked", "detached", "crashed", "lost", "raised"]
"""How a leg ended. `lost` means that it ended well, but that its response got lost."""

MAX_SHOWN = 80
"""How much of a value a summary shows, in characters."""


@dataclass(frozen=True)
class Asked:
    """A question that was asked.

    Attributes:
        key: the author's key.
        message: what the user reads, or None if the question is not for a user.
        form: the JSON Schema of the form, or None if it is another kind of question.
    """

    key: str
    message: str | None
    form: Mapping[str, Any] | None = field(repr=False)

    @classmethod
    def of(cls, key: str, question: Question) -> Asked:
        """Return what a test sees of a question."""
        return cls(key, question.params.get("message"), question.params.get("requestedSchema"))


@dataclass(frozen=True)
class LegRun:
    """One run of the function.

    Attributes:
        number: which leg this is, from 1. A leg that is repeated after a fault has the same number again.
        steps: the keys of the steps whose functions ran, in order.
        asked: the keys of the questions that it asked.
        ended: how it ended.
    """

    number: int
    steps: tuple[str, ...]
    asked: tuple[str, ...]
    ended: Ended


@dataclass(repr=False)
class Run(Generic[T]):
    """The outcome of a call that a test ran.

    Attributes:
        value: the return value of the function, unchanged; None if a question was left unanswered.
        result: the result that a client sees: `content`, `structuredContent` and `isError` of a tool, `messages` of
            a prompt, or `contents` of a resource.
        asked: the keys of the questions, in the order in which they were asked.
        unanswered: the questions that the test had no answer for, by key. The call ended there.
        legs: how often the function ran.
        became_task: whether the call was a task, from the start or after `ctx.detach()`.
        segments: the emitted blocks, in order. They are also in `result`.
        progress: the progress reports: done, total, message.
        logs: the log messages: level, data.
        changed: the lists and URIs that were announced as changed.
        steps: how often the function of each step ran, by key, in order. A fault makes some run twice.
        questions: the questions with their messages and forms, in the order in which they were asked.
        history: the legs, in order.
    """

    value: T = None  # type: ignore[assignment]  # a type that includes None would make every test check for it
    result: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    unanswered: Mapping[str, Question] = field(default_factory=dict)
    legs: int = 0
    became_task: bool = False
    segments: list[dict[str, Any]] = field(default_factory=list)
    progress: list[tuple[float, float | None, str | None]] = field(default_factory=list)
    logs: list[tuple[str, Any]] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    steps: dict[str, int] = field(default_factory=dict, compare=False)
    questions: list[Asked] = field(default_factory=list, compare=False)
    history: list[LegRun] = field(default_factory=list, compare=False)

    @property
    def text(self) -> str:
        """The text of the result, one line per content block, prompt message or part of a resource's contents."""
        messages = [message["content"] for message in self.result.get("messages", ())]
        parts = [*self.result.get("content", ()), *messages, *self.result.get("contents", ())]
        return "\n".join(part["text"] for part in parts if "text" in part)

    @property
    def repeated(self) -> list[str]:
        """The keys of the steps whose functions ran more than once: their effects may have happened twice."""
        return [key for key, times in self.steps.items() if times > 1]

    def __repr__(self) -> str:
        parts = [f"{self.legs} {'leg' if self.legs == 1 else 'legs'}{' as a task' if self.became_task else ''}"]
        if self.asked:
            parts.append(f"asked {_names(self.asked)}")
        if self.steps:
            ran = [key if times == 1 else f"{key} ×{times}" for key, times in self.steps.items()]
            parts.append(f"ran {_names(ran)}")
        faults = [f"leg {leg.number} {leg.ended}" for leg in self.history if leg.ended in ("crashed", "lost")]
        return f"<Run: {'; '.join([*parts, *faults, *self._shown_end()])}>"

    def _shown_end(self) -> list[str]:
        if self.unanswered:
            return [f"no answer to {_names(self.unanswered)}"]
        if not self.result:
            return []
        shown = repr(self.value)
        return [f"returned {shown if len(shown) <= MAX_SHOWN else shown[:MAX_SHOWN] + '…'}"]


def _names(keys: Iterable[str]) -> str:
    return ", ".join(keys)
