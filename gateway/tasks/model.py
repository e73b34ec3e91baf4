"""Pure: the neutral task, which every wire tells in its own words.

A task moves between five phases; the store's scripts know which moves there are. All times are integer milliseconds
since the epoch, read from the store's own clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple


class Phase(StrEnum):
    """Where a task is."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Tell whether nothing can happen to the task any more, except that it is deleted or expires."""
        return self in ENDED


ENDED = frozenset({Phase.DONE, Phase.CANCELLED})


class Progress(NamedTuple):
    """How far a task has told to be.

    Attributes:
        done: units of work done.
        total: units in all, if known.
        message: for people, if any.
    """

    done: float
    total: float | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class WireQuestion:
    """One open question of a waiting task.

    Attributes:
        key: the author's key. On the wire it goes by the key that maps to it in `TaskView.questions`.
        digest: of the question (`gateway.engine.questions.question_digest`).
        method: `elicitation/create`, `sampling/createMessage` or `roots/list`.
        params: the params of that request, as the released wire writes them.
    """

    key: str
    digest: bytes
    method: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a task is kept.

    Attributes:
        counts_from: `created` (time to live) or `ended` (keep alive).
        ms: from then on.
    """

    counts_from: Literal["created", "ended"]
    ms: int


@dataclass(frozen=True, slots=True)
class TaskView:
    """A stored task as its owner may see it.

    Attributes:
        task_id: its id, unique for its owner.
        tool: the tool that it runs.
        phase: where it is.
        created_ms: when it was created.
        updated_ms: when its phase or progress last changed.
        ended_ms: when it was done or cancelled, None before.
        expires_ms: when the store forgets it, as things are now.
        ttl_ms: time to live since creation, as things are now.
        now_ms: the store's clock when this was read; `now_ms - created_ms` is the task's age.
        generation: grows with each claim; a hint names it.
        form: the words it was created in, such as `released`.
        capabilities: what the client declared that created it.
        progress: the last told, if any.
        questions: wire key → question that still has no answer; empty unless waiting.
        result: the tool's result, once done without a JSON-RPC error.
        error: the JSON-RPC error `{code, message, data?}`, once done with one.
        scopes: what the tool asked for when the task was created.
        opened: False if what is sealed in it cannot be opened here; then `capabilities`, `questions`, `result`, `error`
            and `scopes` are empty.
        kept_ms: how long it is kept from its end on, None if its retention counts from its creation.
        withdrawn: whether it was cancelled with the request that created it, which nobody answers any more.
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
