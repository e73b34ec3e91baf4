"""Pure: what tasks need of a store: one side for their owners, one for workers, and what goes in and out."""

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
        task_id: at least 128 random bits, or the client's own choice where its wire has that.
        tool: the tool's name.
        tool_version: of the process that creates it.
        form: the words it is created in, such as `released`.
        retention: how long it is kept; no more than the deployment's maximum counts.
        capabilities: what the client declared.
        arguments: as the client sent them.
        principal: the caller, None when anonymous.
        journal: what the call has learned so far (`Journal.to_map`).
        max_attempts: how many workers may be lost over it.
        context: whatever else a worker needs to run it, kept sealed.
        request: what `TaskStore.of_request` finds it by, telling nothing by itself, such as a digest; "" for nothing.
        order: what a repetition of the same order is recognised by, telling nothing by itself; "" for nothing.
        order_ms: for how long it is.
        scopes: what the tool asks for; kept sealed, for those who reach for the task where nobody knows the tool.
        result: what the call came to, for a task that is done from the start; None for one that is queued.
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
    """A place in the list of an owner's tasks, which are in the order of these marks.

    Attributes:
        expires_ms: when the task of that place expires, as things were.
        task_id: its id.
    """

    expires_ms: int
    task_id: str


class TaskPage(NamedTuple):
    """A part of the list of an owner's tasks.

    Attributes:
        views: the tasks, in brief: `questions` is empty, and `result` says nothing but `isError`, where it is true.
        last: after which place the next page begins; None if there is none.
    """

    views: Sequence[TaskView]
    last: TaskPlaceMark | None


@dataclass(slots=True, eq=False)
class Claim:
    """A task in the hands of one worker, until it ends, waits, is handed back, or the lease is lost.

    Attributes:
        owner, task_id, tool, tool_version, form, capabilities, arguments, principal, context: as created.
        partition: which of the store's partitions holds it.
        entry_id: its entry in that partition's queue.
        generation: the number of this claim; every write names it.
        token: tells this claim from any other that has its number after the store has lost its newest changes.
        attempt: 1, and 1 more for each worker that was lost over it.
        max_attempts: as created.
        created_ms, expires_ms, now_ms: times on the store's clock, `now_ms` being the moment of the claim.
        journal: what the call has learned so far, the client's newest answers included (`Journal.from_map` reads it).
        segments: how many segments are stored.
        emitted: how many bytes they have.
        asked: author's key → how often it went over the wire; the store's own memory.
        written: what the store holds of the journal; the store's own memory, nobody else's.
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
        checkpoint: the new checkpoint as `Journal.to_map` writes it, or None for no change.
        journal: the whole journal map; the store writes what it does not have yet. None for no change.
        progress: the newest, or None for no change. Listeners are told.
    """

    steps: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: Mapping[str, Any] | None = None
    journal: Mapping[str, Any] | None = None
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class TaskQuestion:
    """A question that a task stops to ask; see `gateway.tasks.model.WireQuestion`."""

    digest: bytes
    method: str
    params: Mapping[str, Any]


class Heartbeat(StrEnum):
    """What a worker learns when it says that it is alive."""

    OK = "ok"
    CANCELLED = "cancelled"
    LOST = "lost"


class Spending(StrEnum):
    """What became of an attempt to use something that may be used once."""

    FIRST = "first"
    RUNNING = "running"
    REFUSED = "refused"
    ANSWERED = "answered"


@dataclass(frozen=True, slots=True)
class LegUse:
    """The use of a leg that can be used once.

    Attributes:
        mark: the key of its mark; the store's own.
        token: tells it from any other use.
        repeated: whether a use of the same request came before of which nobody knows all that it did.
        ttl_ms: how long it must stay marked.
    """

    mark: str
    token: str
    repeated: bool
    ttl_ms: int


class UseEnd(StrEnum):
    """What remains of a use that has no answer.

    `NEVER`: nothing of it happened, the leg can be used again. `REPEATABLE`: the same request can use it again, and
    no other. `USED`: it stays used.
    """

    NEVER = "never"
    REPEATABLE = "repeatable"
    USED = "used"


@dataclass(frozen=True, slots=True)
class Spent:
    """What became of an attempt.

    Attributes:
        outcome: that.
        body: with `ANSWERED`, what the first use was answered with.
        use: with `FIRST`, the use.
    """

    outcome: Spending
    body: bytes | None = None
    use: LegUse | None = None


class TaskStore(Protocol):
    """Keeps tasks for those who own them.

    Every method raises `TaskStoreDown` when the store does not do what is asked within about 2 s. It may have done it
    nevertheless by then, but it never does so later. It did nothing where the error is a `TaskStoreAway`. What belongs
    to another owner looks like what never was.
    """

    async def check(self) -> None:
        """Check that the store can be relied on, and prepare it. May be called again.

        Raises:
            ConfigurationError: its version, its eviction policy, its number of partitions or its keys do not fit.
            TaskStoreDown: it cannot be reached; the check is made up for by the first use that reaches it.
        """
        ...

    async def owner(self, principal: Principal | None) -> str:
        """Return the name under which the store knows a caller, `None` when anonymous.

        Nobody but processes of the deployment can tell whose name it is. Ask for it each time: a store that lost
        its data may give other names.
        """
        ...

    async def create(self, new: NewTask, quota: int, quota_bytes: int = ...) -> TaskView:
        """Store a task and queue it, unless it is done; both are over when this returns.

        An order that is repeated returns its first task.

        Args:
            new: the task.
            quota: how many tasks of the owner may be stored, this one included.
            quota_bytes: how many bytes they may keep, all together, from now on.

        Raises:
            TooManyTasks: the quota is used up.
            TooManyTaskBytes: the quota of bytes is.
            TaskIdTaken: the owner has a task of this id, or had one and deleted it; nothing is changed.
            ValueTooLarge: the task has more to keep than the store takes.
        """
        ...

    async def get(self, owner: str, task_id: str) -> TaskView | None:
        """Return a task, or None if it is unknown, another owner's, deleted, or expired."""
        ...

    async def page(self, owner: str, after: TaskPlaceMark | None, limit: int) -> TaskPage:
        """List an owner's tasks: all that `get` returns, in brief, beginning with the one that expires first.

        Whoever goes from page to page sees each task once that lives all the while and keeps its time of expiry,
        whatever happens to others.

        Args:
            owner: whose tasks.
            after: the end of the page before, None for the first page.
            limit: how many tasks at most, 1 or more. Where some have just gone there are fewer, whether or not more
                pages follow.
        """
        ...

    async def of_request(self, owner: str, request: str) -> str | None:
        """Return the id of the task that was created with this `NewTask.request`, None if that is unknown.

        A task that is deleted or expired may still be found.
        """
        ...

    async def answer(self, owner: str, task_id: str, answers: Mapping[str, Mapping[str, Any]]) -> TaskView | None:
        """Record answers by wire key, each `{"result": …}` or `{"error": …}`; with the last the task is queued again.

        The caller has validated them. Keys that are not asked, or have an answer, are ignored.

        Raises:
            ValueTooLarge: one of them is larger than the store takes; none is recorded.
            TooManyTaskBytes: the tasks of the owner keep as much as they may; none is recorded.
        """
        ...

    async def cancel(self, owner: str, task_id: str, *, withdrawn: bool = False) -> TaskView | None:
        """Cancel a task for good, wherever it is; one that has ended stays as it is.

        Args:
            owner: of the task.
            task_id: of the task.
            withdrawn: whether that is because the request that created it was cancelled, see `TaskView.withdrawn`.
        """
        ...

    async def delete(self, owner: str, task_id: str, *, chosen: bool = False) -> TaskView | None:
        """Forget a task, wherever it is: it is unknown from then on. A running one is cancelled, and its worker told.

        Args:
            owner: of the task.
            task_id: of the task.
            chosen: whether the client chose the id. Such an id stays taken until the task would have expired. Of
                thousands of them the latest count for the quota, so that there is an end of ids to remember.

        Returns:
            The task as it was a moment before, or None if there was none.
        """
        ...

    async def deliver(self, owner: str, task_id: str, stream: str, ms: int) -> bool:
        """Take or prolong the right to deliver a task's questions.

        Args:
            owner: of the task.
            task_id: of the task.
            stream: tells who asks from any other, such as a random name.
            ms: for how long, from now on. With 0 the right is given back, and listeners are told.

        Returns:
            Whether the stream has the right. False while another one has it, and where there is nothing to deliver any
            more, since the task has ended or is unknown.
        """
        ...

    async def segments(self, owner: str, task_id: str, after: int = 0) -> list[Any]:
        """Return what the task has emitted: segment `after + 1`, the next, and so on to the last one stored.

        Who wants both reads the task first, then its segments. If the task had ended, then they are all there, for as
        long as the task; the other way round the last ones may be missing. A task deleted in between has none.
        """
        ...

    def watch(self, owner: str, task_ids: Collection[str]) -> AsyncGenerator[str, None]:
        """Yield the id of a task whenever it may have changed.

        First each id once, then as hints come, and all of them after each lost connection and every few seconds.
        Hints are no more than that: read the task. Close the generator (`contextlib.aclosing`) when done. An outage
        of the store does not end it.
        """
        ...

    async def spend(
        self, owner: str, flow_id: str, leg: int, request_digest: bytes, ttl_ms: int, *, leg_ms: int
    ) -> Spent:
        """Use a leg of a flow, which can be done once. If this raises, the leg is not used.

        Args:
            owner: whose flow it is.
            flow_id: the flow.
            leg: the number of its leg.
            request_digest: of everything that makes a request the same one.
            ttl_ms: how long the leg must stay used: what is left of the lifetime of its state.
            leg_ms: how long the leg may run. A use that has not ended by then never will.

        Returns:
            `FIRST`: go ahead, and end with `store_answer` or `end_use`. `ANSWERED`: the same request was answered a
            short time ago, with this body. `RUNNING`: the same request has been let go ahead, or any request is just
            about to be. `REFUSED`: anything else.

        Raises:
            TaskStoreAway: the store does not answer in time. Nothing is used.
        """
        ...

    def end_use(self, use: LegUse, end: UseEnd) -> None:
        """End a use without an answer, in the background and as soon as the store answers."""
        ...

    async def store_answer(self, owner: str, flow_id: str, leg: int, request_digest: bytes, body: bytes) -> None:
        """Keep, for a minute, what the first use of a leg was answered with.

        Raises:
            ValueTooLarge: it is larger than the store takes.
        """
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class WorkQueue(Protocol):
    """Hands tasks to workers. One object serves one worker, under its name.

    All methods raise `TaskStoreDown`; those that write for a claim raise `LeaseLost` when it does not hold any more,
    and `ValueTooLarge` when the store does not take what they write; they have changed nothing then. Each may be
    repeated after `TaskStoreDown`: doing it twice is doing it once.
    """

    @property
    def partitions(self) -> int:
        """How many partitions there are; a worker reads all of them."""
        ...

    async def claim(
        self, partition: int, count: int, wait_ms: int = 1000, may_begin: Callable[[str], bool] | None = None
    ) -> list[Claim]:
        """Claim up to `count` tasks of a partition: those whose worker was lost, and new ones.

        Waits for up to `wait_ms` (no more than 1000) if there is none. Call it in a loop, one for each partition.
        Tasks over which too many workers were lost are ended here.

        Args:
            partition: which one.
            count: how many at most.
            wait_ms: how long to wait for one.
            may_begin: asked once for each new task, by its owner; a task that may not begin now goes back, behind all
                others. None lets all begin.
        """
        ...

    async def make_way(self, partition: int, owners: Sequence[str]) -> bool:
        """Put the tasks of owners that wait in front of everybody else's behind the first of those.

        Returns:
            Whether the next task is somebody else's. False if there is none, or none that is near enough to be seen;
            then it will have come nearer by the next time.
        """
        ...

    async def heartbeat(self, claim: Claim) -> Heartbeat:
        """Prolong the lease. To be called every third of it."""
        ...

    async def keep(self, claim: Claim, kept: Kept) -> None:
        """Add to the stored journal; it is durable when this returns."""
        ...

    async def emit(self, claim: Claim, seq: int, block: Mapping[str, Any]) -> None:
        """Store segment number `seq`, counted from 1; one that is stored already stays as it is."""
        ...

    async def segments(self, owner: str, task_id: str, after: int = 0) -> list[Any]:
        """Return what the task has emitted, as `TaskStore.segments` does."""
        ...

    async def wait(self, claim: Claim, questions: Mapping[str, TaskQuestion], journal: Mapping[str, Any]) -> None:
        """Keep the journal and wait for the client to answer questions, by author's key; the claim ends."""
        ...

    async def finish(
        self, claim: Claim, *, result: Mapping[str, Any] | None = None, error: Mapping[str, Any] | None = None
    ) -> None:
        """End the task with a result or with a JSON-RPC error; the claim ends, and the journal goes."""
        ...

    async def release(self, claim: Claim, journal: Mapping[str, Any]) -> None:
        """Keep the journal and hand the task back for another worker to go on with; no attempt is counted."""
        ...

    def cancellations(self) -> AsyncGenerator[tuple[str, str], None]:
        """Yield (owner, task id) of running tasks as they are cancelled, on whichever worker. Hints, as `watch`."""
        ...

    async def leave(self) -> None:
        """Tell that this worker claims no more. What it still holds is redelivered when its lease ends."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...
