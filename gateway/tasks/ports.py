"""Pure: what tasks need from a store. One interface serves their owners, one serves workers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from gateway.sealing.principal import Principal
from gateway.tasks.model import Progress, Retention, TaskView


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task to be stored and queued.

    Attributes:
        owner: `TaskStore.owner` of the caller.
        task_id: at least 128 random bits, or the client's own choice on wires that allow one.
        tool_version: of the process that creates the task.
        form: the wire format it is created in, such as `released`.
        retention: how long it is kept; capped at the deployment's maximum.
        journal: what the call has learned so far (`Journal.to_map`).
        context: what else a worker needs to run it, stored sealed.
        request: the key under which `TaskStore.of_request` finds it. It reveals nothing, like a digest; "" for nothing.
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
    """The result of `TaskStore.spend`.

    `body` comes with `ANSWERED`: it is the answer to the first use. `use` comes with `FIRST`.
    """

    outcome: Spending
    body: bytes | None = None
    use: LegUse | None = None


class TaskStore(Protocol):
    """Stores tasks for their owners.

    Every method raises `TaskStoreDown` if the store does not do what was asked within about 2 s. The store may have
    done it by then, but it never does it later. After `TaskStoreAway` it has done nothing. A task of another owner
    looks like one that never existed.
    """

    async def check(self) -> None:
        """Check that the store is reliable, and prepare it. May be called again.

        Raises:
            ConfigurationError: its version, eviction policy, number of partitions or keys cannot be used.
            TaskStoreDown: it cannot be reached; the first use that reaches it repeats the check.
        """
        ...

    async def owner(self, principal: Principal | None) -> str:
        """Return the store's name for a caller, `None` when anonymous.

        The name identifies the caller only to processes of the deployment. Ask for it each time: a store that lost its
        data may use other names.
        """
        ...

    async def create(self, new: NewTask, quota: int, quota_bytes: int = ...) -> TaskView:
        """Store a task and, unless it is done, queue it; both are durable when this returns.

        A repeated order returns its first task. `quota` is how many stored tasks the owner may have, including this
        one. `quota_bytes` is what the owner's tasks may use together from now on.

        Raises:
            TooManyTasks: the quota is used up.
            TooManyTaskBytes: the quota of bytes is used up.
            TaskIdTaken: the owner has a task with this id, or deleted one; nothing is changed.
            ValueTooLarge: the task is larger than the store accepts.
        """
        ...

    async def get(self, owner: str, task_id: str) -> TaskView | None:
        """Return a task, or None if it is unknown, another owner's, deleted, or expired."""
        ...

    async def page(self, owner: str, after: TaskPlaceMark | None, limit: int) -> TaskPage:
        """List an owner's tasks: those that `get` returns, in brief, starting with the first to expire.

        A reader of all pages sees each task exactly once if it lives throughout and its expiry does not change. Other
        tasks do not matter. `after` is the end of the previous page, None for the first page. `limit` is 1 or more. A
        page may be shorter if tasks have just gone; more pages may follow.
        """
        ...

    async def briefs(self, owner: str, task_ids: Sequence[str]) -> list[TaskView]:
        """Return those of an owner's tasks that `get` returns, in brief.

        A brief view has no capabilities and questions. Of a result it has whether it is an error, and the message of
        that; of an error, it has no data.
        """
        ...

    async def of_request(self, owner: str, request: str) -> str | None:
        """Return the id of the task created with this `NewTask.request`, None if it is unknown.

        It may return a task that was deleted or has expired.
        """
        ...

    async def answer(self, owner: str, task_id: str, answers: Mapping[str, Mapping[str, Any]]) -> TaskView | None:
        """Record answers by wire key, each `{"result": …}` or `{"error": …}`; the last one queues the task again.

        The caller has validated them. Keys that are not asked, or already have an answer, are ignored.

        Raises:
            ValueTooLarge: one of them is larger than the store accepts; none is recorded.
            TooManyTaskBytes: the owner's tasks have used up their bytes; none is recorded.
        """
        ...

    async def cancel(self, owner: str, task_id: str, *, withdrawn: bool = False) -> TaskView | None:
        """Cancel a task for good, in any phase; a task that has ended stays as it is.

        `withdrawn` says whether the request that created it was cancelled; see `TaskView.withdrawn`.
        """
        ...

    async def delete(self, owner: str, task_id: str, *, chosen: bool = False) -> TaskView | None:
        """Delete a task, in any phase. A running task is cancelled, and its worker notified.

        Return the task as it was just before, None if there was none. An id that the client has `chosen` stays taken
        until the task would have expired. The store remembers thousands of such ids per owner; further ones count for
        the quota.
        """
        ...

    async def deliver(self, owner: str, task_id: str, stream: str, ms: int) -> bool:
        """Take or extend the right to deliver a task's questions.

        The right lasts `ms` from now on; 0 gives it back and notifies listeners. `stream` identifies the requester,
        such as a random name. Return False if another stream has the right, or if there is nothing left to deliver
        because the task has ended or is unknown.
        """
        ...

    async def segments(self, owner: str, task_id: str, after: int = 0) -> list[Any]:
        """Return what the task has emitted, from segment `after + 1` to the last one stored.

        If you need both, read the task before its segments. If that task had ended, all of its segments exist as long
        as it does. In the other order, the last ones may be missing. A task deleted in between has none.
        """
        ...

    def watch(self, owner: str, task_ids: Collection[str]) -> AsyncGenerator[str, None]:
        """Yield the id of a task whenever it may have changed.

        Yields each id once at first, then as hints arrive, and all ids after each lost connection and every few
        seconds. Treat them as hints, and read the task. Close the generator (`contextlib.aclosing`) when done. An
        outage of the store does not end it.
        """
        ...

    async def spend(
        self, owner: str, flow_id: str, leg: int, request_digest: bytes, ttl_ms: int, *, leg_ms: int
    ) -> Spent:
        """Use a leg of a flow, which is possible once. If this raises, the leg is not used.

        `request_digest` covers everything that must be equal in a repetition of the request. The leg stays used for
        `ttl_ms`, the remaining lifetime of its state. It may run for `leg_ms`; after that, the store expects no answer
        from it.

        `FIRST`: go ahead, and end with `store_answer` or `end_use`. `ANSWERED`: the same request was answered a short
        time ago, with this body. `RUNNING`: the same request is running, or some request has just reserved the leg.
        `REFUSED`: anything else.

        Raises:
            TaskStoreAway: the store does not answer in time. Nothing is used.
        """
        ...

    def end_use(self, use: LegUse, end: UseEnd) -> None:
        """End a use without an answer, in the background and as soon as the store answers."""
        ...

    async def store_answer(self, owner: str, flow_id: str, leg: int, request_digest: bytes, body: bytes) -> None:
        """Store the answer to the first use of a leg for a minute.

        Raises:
            ValueTooLarge: it is larger than the store accepts, or than the answers that it keeps for one owner.
        """
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class WorkQueue(Protocol):
    """Hands tasks to workers. One object serves one worker, under its name.

    All methods raise `TaskStoreDown`. Methods that write for a claim raise `LeaseLost` if the claim no longer holds,
    and `ValueTooLarge` if the store does not accept the value. In both cases they have changed nothing. A call may be
    repeated after `TaskStoreDown`; repeating it has no further effect.
    """

    @property
    def partitions(self) -> int:
        """The number of partitions; a worker reads all of them."""
        ...

    async def claim(
        self, partition: int, count: int, wait_ms: int = 1000, may_begin: Callable[[str], bool] | None = None
    ) -> list[Claim]:
        """Claim up to `count` tasks of a partition: those whose worker was lost, and new ones.

        If there is none, this waits for up to `wait_ms` (at most 1000). Call it in a loop, one for each partition. A
        task that has lost too many workers is ended here. `may_begin` is called once for each new task, with its owner.
        A task that may not begin now goes to the end of the queue. None lets all begin.
        """
        ...

    async def make_way(self, partition: int, owners: Sequence[str], *, further: bool = True) -> bool:
        """Move the tasks of these owners from the head of the queue behind the first task of another owner.

        Return whether the next task now belongs to another owner. If there is none within reach, the next call looks
        `further`: the tasks that were looked at change their order.
        """
        ...

    async def heartbeat(self, claim: Claim) -> Heartbeat:
        """Extend the lease. Call this every third of it."""
        ...

    async def keep(self, claim: Claim, kept: Kept) -> None:
        """Add to the stored journal. The change is durable when this returns."""
        ...

    async def emit(self, claim: Claim, seq: int, block: Mapping[str, Any]) -> None:
        """Store segment number `seq`, counted from 1; a stored segment is not replaced."""
        ...

    async def segments(self, owner: str, task_id: str, after: int = 0) -> list[Any]:
        """Return what the task has emitted, like `TaskStore.segments`."""
        ...

    async def wait(self, claim: Claim, questions: Mapping[str, TaskQuestion], journal: Mapping[str, Any]) -> None:
        """Store the journal and the questions, by author's key, and wait for the client's answers; the claim ends."""
        ...

    async def finish(
        self, claim: Claim, *, result: Mapping[str, Any] | None = None, error: Mapping[str, Any] | None = None
    ) -> None:
        """End the task with a result or with a JSON-RPC error; the claim ends, and the journal is deleted."""
        ...

    async def release(self, claim: Claim, journal: Mapping[str, Any]) -> None:
        """Store the journal and hand the task back, so another worker can continue it; no attempt is counted."""
        ...

    def cancellations(self) -> AsyncGenerator[tuple[str, str], None]:
        """Yield (owner, task id) of running tasks as they are cancelled on any worker. Hints, as in `watch`."""
        ...

    async def leave(self) -> None:
        """Declare that this worker claims no more tasks. Those it still holds are redelivered when their leases end."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...
