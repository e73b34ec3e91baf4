"""Pure: what a task store takes and returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from gateway.sealing.principal import Principal
from gateway.tasks.model import Progress, Retention, TaskView


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task to be stored and queued.

    Attributes:
        owner: `RedisTaskStore.owner` of the caller.
        task_id: at least 128 random bits, or the client's own choice on wires that allow one.
        tool_version: of the process that creates the task.
        form: the wire format it is created in, such as `released`.
        retention: how long it is kept; capped at the deployment's maximum.
        journal: what the call has learned so far (`Journal.to_map`).
        context: what else a worker needs to run it, stored sealed.
        request: the key under which `of_request` finds it. It reveals nothing, like a digest; "" for nothing.
        order: identifies repetitions of the same order. It reveals nothing; "" for nothing.
        order_ms: how long repetitions are recognised.
        scopes: the scopes that the tool requires. They are stored sealed, for replicas that do not know the tool.
        result: the outcome of the call, for a task that is done from the start; None for a task to queue.
    """

    owner: str
    task_id: str
    tool: str
    tool_version: int
    form: str
    retention: Retention
    capabilities: Mapping[str, Any]
    arguments: Mapping[str, Any]
    principal: Principal | None
    journal: Mapping[str, Any]
    max_attempts: int = 3
    context: Mapping[str, Any] = field(default_factory=dict)
    request: str = ""
    order: str = ""
    order_ms: int = 0
    scopes: frozenset[str] = frozenset()
    result: Mapping[str, Any] | None = None


class TaskPlaceMark(NamedTuple):
    """A place in the list of an owner's tasks, which is sorted by these marks.

    `expires_ms` is when the task at that place expires, as things were.
    """

    expires_ms: int
    task_id: str


class TaskPage(NamedTuple):
    """A page of an owner's tasks.

    Attributes:
        views: the tasks, in brief: `questions` is empty, and `result` contains only a true `isError` and its message.
        last: the place after which the next page starts; None on the last page.
    """

    views: Sequence[TaskView]
    last: TaskPlaceMark | None


@dataclass(slots=True, eq=False)
class Claim:
    """A task held by one worker, until it ends, waits, is handed back, or the lease is lost.

    Attributes:
        owner, task_id, tool, tool_version, form, capabilities, arguments, principal, context: as created.
        entry_id: its entry in that partition's queue.
        generation: the number of this claim; every write names it.
        token: distinguishes claims that have the same number because the store lost its newest changes.
        attempt: 1, plus 1 for each worker that was lost over it.
        created_ms, expires_ms, now_ms: times on the store's clock; `now_ms` is the moment of the claim.
        journal: what the call has learned so far, including the client's newest answers (`Journal.from_map` reads it).
        emitted: size of the stored segments in bytes.
        asked: key of a question → how often it was asked; private to the store.
        written: what the store holds of the journal; private to the store.
    """

    owner: str
    task_id: str
    tool: str
    tool_version: int
    form: str
    capabilities: Mapping[str, Any]
    arguments: Mapping[str, Any]
    principal: Principal | None
    context: Mapping[str, Any]
    partition: int
    entry_id: str
    generation: int
    token: str
    attempt: int
    max_attempts: int
    created_ms: int
    expires_ms: int
    now_ms: int
    journal: dict[str, Any]
    segments: int = 0
    emitted: int = 0
    asked: dict[str, int] = field(default_factory=dict, repr=False)
    written: dict[str, bytes] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Kept:
    """What a running task adds to its stored journal.

    Attributes:
        steps: key → result.
        checkpoint: the new checkpoint as `Journal.to_map` writes it, None for no change.
        slot: where a relay stands now (`Journal.slot`), None for no change.
        journal: the whole journal map; the store writes what it does not have yet. None for no change.
        progress: the newest report, None for no change. Listeners get a hint.
    """

    steps: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: Mapping[str, Any] | None = None
    slot: Mapping[str, Any] | None = None
    journal: Mapping[str, Any] | None = None
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class TaskQuestion:
    """A question of a task that stops to ask it; see `gateway.tasks.model.WireQuestion`.

    Attributes:
        recorded_as: the key under which the journal records the answer to a forwarded question; "" for any other,
            whose answer is recorded under its own key.
    """

    digest: bytes
    method: str
    params: Mapping[str, Any]
    recorded_as: str = ""


class Heartbeat(StrEnum):
    """The reply to a worker's heartbeat."""

    OK = "ok"
    CANCELLED = "cancelled"
    LOST = "lost"


class Spending(StrEnum):
    """The outcome of an attempt to use something that can be used once."""

    FIRST = "first"
    RUNNING = "running"
    REFUSED = "refused"
    ANSWERED = "answered"


@dataclass(frozen=True, slots=True)
class LegUse:
    """The use of a single-use leg.

    Attributes:
        mark: the key of its mark; private to the store.
        token: distinguishes it from any other use.
        repeated: whether the same request was used before with effects that are not fully known.
        ttl_ms: how long it must stay marked.
    """

    mark: str
    token: str
    repeated: bool
    ttl_ms: int


class UseEnd(StrEnum):
    """How a use without an answer ends.

    `NEVER`: it had no effect, and the leg can be used again. `REPEATABLE`: only the same request can use it again.
    `USED`: it stays used.
    """

    NEVER = "never"
    REPEATABLE = "repeatable"
    USED = "used"


@dataclass(frozen=True, slots=True)
class Spent:
    """The result of `RedisTaskStore.spend`.

    `body` comes with `ANSWERED`: it is the answer to the first use. `use` comes with `FIRST`.
    """

    outcome: Spending
    body: bytes | None = None
    use: LegUse | None = None
