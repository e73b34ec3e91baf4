"""Pure: a task, independent of any wire.

A task moves between five phases; the store's scripts define the transitions. All times are integer milliseconds since
the epoch, on the store's own clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple


class Phase(StrEnum):
    """The state of a task."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether the task has ended: it can only be deleted or expire."""
        return self in ENDED


ENDED = frozenset({Phase.DONE, Phase.CANCELLED})


class Progress(NamedTuple):
    """How far a task has got, as it last reported, in units of work. The message is for people."""

    done: float
    total: float | None = None
    message: str | None = None


def texts_of(result: Mapping[str, Any]) -> list[str]:
    """Return the texts of a tool's result, in order. The result of another server may have any form."""
    blocks = [block for block in blocks_of(result) if isinstance(block, dict)]
    return [str(block.get("text")) for block in blocks if block.get("type") == "text"]


def blocks_of(result: Mapping[str, Any]) -> list[Any]:
    """Return the content blocks of a tool's result. The result of another server may have any form."""
    content = result.get("content")
    return content if isinstance(content, list) else []


@dataclass(frozen=True, slots=True)
class WireQuestion:
    """One open question of a waiting task.

    Attributes:
        key: the key in the journal. `TaskView.questions` maps the key on the wire to this question.
        digest: of the question (`gateway.engine.questions.Question.digest`).
        method: `elicitation/create`, `sampling/createMessage` or `roots/list`.
        params: the params of that request, as the released wire writes them.
        forwarded: whether it passes on another server's request; see `gateway.engine.forwarded`.
    """

    key: str
    digest: bytes
    method: str
    params: Mapping[str, Any]
    forwarded: bool = False


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a task is kept.

    Attributes:
        counts_from: `created` (time to live) or `ended` (keep alive).
    """

    counts_from: Literal["created", "ended"]
    ms: int


@dataclass(frozen=True, slots=True)
class TaskView:
    """A stored task as its owner may see it.

    Attributes:
        task_id: unique for its owner.
        tool: its tool, "" if the record is too damaged to name it.
        updated_ms: when its phase or progress last changed.
        ended_ms: when it was done or cancelled, None before.
        expires_ms: when the store will delete it, as things are now.
        ttl_ms: time to live since creation, as things are now.
        now_ms: the store's clock when this was read; `now_ms - created_ms` is the task's age.
        generation: grows with each claim; a hint contains it.
        form: the wire format it was created in, such as `released`; "" if the record is too damaged to name it.
        questions: wire key → question without an answer; empty unless waiting.
        result: the tool's result, if it is done without a JSON-RPC error.
        error: the JSON-RPC error `{code, message, data?}`, if it ended with one.
        scopes: the scopes that the tool required when the task was created.
        opened: False if the record cannot be read here: a key is missing, a newer release wrote it, or it is damaged.
            Then `capabilities`, `questions`, `result`, `error` and `scopes` are empty.
        kept_ms: how long it is kept after its end, None if its retention counts from its creation.
        withdrawn: whether it was cancelled together with the request that created it; that request gets no answer.
    """

    task_id: str
    tool: str
    phase: Phase
    created_ms: int
    updated_ms: int
    ended_ms: int | None
    expires_ms: int
    ttl_ms: int
    now_ms: int
    generation: int
    form: str
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    progress: Progress | None = None
    questions: Mapping[str, WireQuestion] = field(default_factory=dict)
    result: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    scopes: frozenset[str] = frozenset()
    opened: bool = True
    kept_ms: int | None = None
    withdrawn: bool = False
