"""Stores tasks for their owners, in Redis."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final
from weakref import WeakValueDictionary

from gateway.errors import TaskIdTaken, TaskStoreAway, TaskStoreDown, TooManyTaskBytes, TooManyTasks, ValueTooLarge
from gateway.runtime.turns import Turns
from gateway.sealing.principal import Principal
from gateway.settings.model import MAX_STORED_BYTES
from gateway.storage.all_tasks import AllTasks, read_totals
from gateway.storage.client import SECONDS, RedisClient
from gateway.storage.deployment import Deployment, Inspected
from gateway.storage.lua.shared_scripts import BEGIN, BRIEFS, END_USE, KEEP_ANSWER, PAGE, SPEND, SPENT_ANSWER_MS
from gateway.storage.lua.task_scripts import (
    ANSWER,
    BRIEF_FIELDS,
    CANCEL,
    CREATE,
    DELETE,
    DELETED_IDS,
    DELETED_MS,
    DELIVER,
    READ,
    Script,
)
from gateway.storage.owners import Owners
from gateway.storage.pubsub import RECHECK_SECONDS, Subscriber, topic_of
from gateway.storage.record_reader import RecordReader
from gateway.storage.records import Records
from gateway.storage.redis_keys import RedisKeys, TaskPlace, split_member
from gateway.storage.replica_channel import ReplicaChannel
from gateway.storage.scripts import Value, pairs, run_on_task
from gateway.storage.unreadable import Unreadable
from gateway.tasks import stored_journal as rest
from gateway.tasks.model import Phase, Retention, TaskView
from gateway.tasks.ports import LegUse, NewTask, Spending, Spent, TaskPage, TaskPlaceMark, UseEnd
from gateway.tokens.key_holder import KeyHolder

DEFAULT_PARTITIONS = 8
DEFAULT_MAX_TTL_MS = 86_400_000
DEFAULT_TASK_BYTES = 64 * 1024 * 1024

_HOLD_MS = int(SECONDS * 1000)
"""How long a single-use leg stays reserved before its use begins: as long as its replica waits for the store."""

_REQUEST_DIGITS = 32
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 1.0
_STATE_AFTER = {UseEnd.NEVER: "", UseEnd.REPEATABLE: "kept", UseEnd.USED: "used"}


SPENT_ANSWER_BYTES: Final = 16 * 2**20
"""How many bytes of answers of single-use legs are kept for one owner, as they are sealed. The first may be larger."""

SEGMENTS_AT_ONCE: Final = 512
"""How many segments are opened in one turn."""

BRIEFS_AT_ONCE: Final = 8
"""How many tasks of a page are opened in one turn."""


class RedisTaskStore:
    """Stores tasks for their owners, who are spread over the partitions.

    Every method raises `TaskStoreDown` if the store does not do what was asked within about 2 s. The store may have
    done it by then, but it never does it later. After `TaskStoreAway` it has done nothing. A task of another owner
    looks like one that never existed.

    No task is kept for longer than `max_ttl_ms`, or stores a value larger than `max_value_bytes`.
    """

    def __init__(
        self,
        client: RedisClient,
        holder: KeyHolder,
        *,
        partitions: int = DEFAULT_PARTITIONS,
        max_ttl_ms: int = DEFAULT_MAX_TTL_MS,
        max_value_bytes: int = MAX_STORED_BYTES,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._client = client
        self._keys = RedisKeys(holder.audience, partitions)
        self._records = Records(holder, client.telemetry, max_value_bytes)
        self._reader = RecordReader(self._records)
        self._max_ttl_ms = max_ttl_ms
        self._owners = Owners(client, self._keys, holder, random_bytes)
        self._deployment = Deployment(client, self._keys, self._owners, max_ttl_ms)
        self._notices = Subscriber(client)
        self._ending: set[asyncio.Task[None]] = set()
        self._large_reads = LargeReads()
        self._turns = Turns()

    def replica_channel(self) -> ReplicaChannel:
        """Return a channel to all replicas over the same connections. Closing the store closes it."""
        return ReplicaChannel(self._client, self._notices, self._keys)

    def all_tasks(self) -> AllTasks:
        """Return what operators can do with the tasks of all owners, over the same connections."""
        return AllTasks(self._client, self._keys)

    async def check(self) -> None:
        """Check that the store is reliable, and prepare it. May be called again.

        Raises:
            ConfigurationError: its version, eviction policy, number of partitions or keys cannot be used.
            TaskStoreDown: it cannot be reached; the first use that reaches it repeats the check.
        """
        with self._client.starting():
            await self._deployment.check()

    async def inspect(self) -> Inspected:
        """Report what `check` would find, without changing anything.

        Raises:
            ConfigurationError: lists everything that is wrong, including a refused login.
            TaskStoreDown: the server cannot be reached; `why_down` says why.
        """
        with self._client.starting():
            return await self._deployment.inspect()

    @property
    def why_down(self) -> str:
        """The last failure of the connection, in words."""
        return self._client.problem

    async def owner(self, principal: Principal | None) -> str:
        """Return the store's name for a caller, `None` when anonymous.

        The name identifies the caller only to processes of the deployment. Ask for it each time: a store that lost its
        data may use other names.
        """
        await self._deployment.ensure()
        return self._owners.name(principal)

    async def create(self, new: NewTask, quota: int, quota_bytes: int = DEFAULT_TASK_BYTES) -> TaskView:
        """Store a task and, unless it is done, queue it; both are durable when this returns.

        A repeated order returns its first task. `quota` is how many stored tasks the owner may have, including this
        one. `quota_bytes` is what the owner's tasks may use together from now on.

        Raises:
            TooManyTasks: the quota is used up.
            TooManyTaskBytes: the quota of bytes is used up.
            TaskIdTaken: the owner has a task with this id, or deleted one; nothing is changed.
            ValueTooLarge: the task is larger than the store accepts.
        """
        await self._deployment.ensure()
        place = self._keys.place(new.owner, new.task_id)
        retention = Retention(new.retention.counts_from, max(1, min(new.retention.ms, self._max_ttl_ms)))
        about, fields = self._records.created(new)
        limits = (quota, quota_bytes, self._max_ttl_ms, retention.ms, retention.counts_from)
        arguments = (*limits, new.request, about, *pairs(fields), new.order_ms)
        order = (self._keys.order(new.owner, new.order),) if new.order_ms else ()
        create = partial(run_on_task, self._client, CREATE, place, *arguments, more_keys=order)
        reply = await create()
        if reply[0] == b"first":
            first = await self.get(new.owner, _text(reply[1]))
            if first is not None:
                return first
            # The task is gone. If it just expired, so did its order. The order of a deleted task is still remembered.
            reply = await create()
            if reply[0] == b"first":
                raise TaskIdTaken
        if reply[0] == b"taken":
            raise TaskIdTaken
        if reply[0] == b"full":
            raise TooManyTasks(quota, _retry_after(reply[1]))
        if reply[0] == b"no room":
            raise TooManyTaskBytes(quota_bytes, _retry_after(reply[1]))
        return _view_of_new(new, retention, int(reply[1]), int(reply[2]))

    async def get(self, owner: str, task_id: str) -> TaskView | None:
        """Return a task, or None if it is unknown, another owner's, deleted, or expired."""
        return await self._view(owner, task_id, await self._run(READ, owner, task_id, ""))

    async def _run(self, script: Script, owner: str, task_id: str, *args: Value) -> Any:
        return await run_on_task(self._client, script, self._keys.place(owner, task_id), *args)

    async def _view(self, owner: str, task_id: str, reply: Any) -> TaskView | None:
        """Return the task from a script's `view()`. A large one is read now, when it is the owner's turn."""
        if not reply or len(reply) > 1:
            return self._reader.view(owner, task_id, reply)
        async with self._large_reads.of(owner):
            reply = await self._run(READ, owner, task_id, "whole")
            await self._turns.begin(None, owner)
            return self._reader.view(owner, task_id, reply)

    async def page(self, owner: str, after: TaskPlaceMark | None, limit: int) -> TaskPage:
        """List an owner's tasks: those that `get` returns, in brief, starting with the first to expire.

        A reader of all pages sees each task exactly once if it lives throughout and its expiry does not change. Other
        tasks do not matter. `after` is the end of the previous page, None for the first page. `limit` is 1 or more. A
        page may be shorter if tasks have just gone; more pages may follow.
        """
        listed = await self._client.run(PAGE, [self._keys.owner_index(owner)], (limit + 1, *(after or ("", ""))))
        marks = [TaskPlaceMark(int(ms), _text(task_id)) for task_id, ms in zip(listed[::2], listed[1::2], strict=True)]
        more, marks = len(marks) > limit, marks[:limit]
        if not marks:
            return TaskPage([], None)
        return TaskPage(await self.briefs(owner, [mark.task_id for mark in marks]), marks[-1] if more else None)

    async def briefs(self, owner: str, task_ids: Sequence[str]) -> list[TaskView]:
        """Return those of an owner's tasks that `get` returns, in brief.

        A brief view has no capabilities and questions. Of a result it has whether it is an error, and the message of
        that; of an error, it has no data.
        """
        keys = [self._keys.place(owner, task_id).task for task_id in task_ids]
        views = []
        async with self._large_reads.of(owner):
            now_ms, *read = await self._client.run(BRIEFS, keys, ())
            for number, (task_id, key, values) in enumerate(zip(task_ids, keys, read, strict=True)):
                fields = values or await self._client.command("HMGET", key, *BRIEF_FIELDS)  # it is large
                if not values or number % BRIEFS_AT_ONCE == 0:
                    await self._turns.begin(None, owner)
                views.append(self._reader.brief(owner, task_id, now_ms, fields))
        return [view for view in views if view is not None]

    async def of_request(self, owner: str, request: str) -> str | None:
        """Return the id of the task created with this `NewTask.request`, None if it is unknown.

        It may return a task that was deleted or has expired.
        """
        task_id: bytes | None = await self._client.command("HGET", self._keys.requests(owner), request)
        return None if task_id is None else _text(task_id)

    async def answer(self, owner: str, task_id: str, answers: Mapping[str, Mapping[str, Any]]) -> TaskView | None:
        """Record answers by wire key, each `{"result": …}` or `{"error": …}`; the last one queues the task again.

        The caller has validated them. Keys that are not asked, or already have an answer, are ignored.

        Raises:
            ValueTooLarge: one of them is larger than the store accepts; none is recorded.
            TooManyTaskBytes: the owner's tasks have used up their bytes; none is recorded.
        """
        sealed = {key: self._records.seal(owner, task_id, f"n:{key}", dict(answer)) for key, answer in answers.items()}
        reply = await self._run(ANSWER, owner, task_id, *pairs(sealed))
        if reply and reply[0] == b"no room":
            raise TooManyTaskBytes(int(reply[2]), _retry_after(reply[1]))
        return await self._view(owner, task_id, reply)

    async def cancel(self, owner: str, task_id: str, *, withdrawn: bool = False) -> TaskView | None:
        """Cancel a task for good, in any phase; a task that has ended stays as it is.

        `withdrawn` says whether the request that created it was cancelled; see `TaskView.withdrawn`.
        """
        why = "withdrawn" if withdrawn else ""
        return await self._view(
            owner, task_id, await self._run(CANCEL, owner, task_id, self._keys.cancellations(), why)
        )

    async def delete(self, owner: str, task_id: str, *, chosen: bool = False) -> TaskView | None:
        """Delete a task, in any phase. A running task is cancelled, and its worker notified.

        Return the task as it was just before, None if there was none. An id that the client has `chosen` stays taken
        until the task would have expired. The store remembers thousands of such ids per owner; further ones count for
        the quota.
        """
        view = await self.get(owner, task_id)
        if view is None:
            return None
        remembered = ("" if chosen else DELETED_MS, DELETED_IDS)
        token = secrets.token_hex(8)
        reply = await self._run(DELETE, owner, task_id, self._keys.cancellations(), token, *remembered)
        return view if reply == b"deleted" else None

    async def deliver(self, owner: str, task_id: str, stream: str, ms: int) -> bool:
        """Take or extend the right to deliver a task's questions.

        The right lasts `ms` from now on; 0 gives it back and notifies listeners. `stream` identifies the requester,
        such as a random name. Return False if another stream has the right, or if there is nothing left to deliver
        because the task has ended or is unknown.
        """
        return bool(await self._run(DELIVER, owner, task_id, stream, max(0, ms)))

    async def segments(self, owner: str, task_id: str, after: int = 0) -> list[Any]:
        """Return what the task has emitted, from segment `after + 1` to the last one stored, or the first damaged one.

        If you need both, read the task before its segments. If that task had ended, all of its segments exist as long
        as it does. In the other order, the last ones may be missing. A task deleted in between has none.
        """
        async with self._large_reads.of(owner):
            place = self._keys.place(owner, task_id)
            return await read_segments(self._client, self._reader, place, after, lambda: self._turns.begin(None, owner))

    async def watch(self, owner: str, task_ids: Collection[str]) -> AsyncGenerator[str, None]:
        """Yield the id of a task whenever it may have changed.

        Yields each id once at first, then as hints arrive, and all ids after each lost connection and every few
        seconds. Treat them as hints, and read the task. Close the generator (`contextlib.aclosing`) when done. An
        outage of the store does not end it.
        """
        async with self._notices.listen(self._keys.changes(owner), task_ids) as listener:
            while True:
                if listener.missed:
                    listener.missed = False
                    for task_id in task_ids:
                        yield task_id
                for text in await listener.wait(RECHECK_SECONDS):
                    yield topic_of(text)

    async def totals(self) -> dict[Phase, int]:
        """Count the tasks of all owners by phase, or raise `TaskStoreDown`."""
        await self._deployment.ensure()
        return await read_totals(self._client, self._keys)

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

        This takes two scripts. The first one makes a reservation, which expires if the second does not follow soon. So
        a leg is not lost to a replica that dies in between or never learns that it got the reservation.

        Raises:
            TaskStoreAway: the store does not answer in time. Nothing is used.
        """
        mark, answer = self._keys.spent(owner, flow_id, leg), self._keys.spent_answer(owner, flow_id, leg)
        token, request, ttl_ms = secrets.token_hex(8), request_digest.hex()[:_REQUEST_DIGITS], max(1, ttl_ms)
        try:
            reply = await self._client.run(SPEND, [mark, answer], [token, request, _HOLD_MS, ttl_ms])
        except TaskStoreDown:
            raise TaskStoreAway from None
        if reply[0] == b"first":
            use = LegUse(mark, token, reply[1] == 1, ttl_ms)
            await self._begin(use, leg_ms)
            return Spent(Spending.FIRST, use=use)
        if reply[0] == b"running":
            return Spent(Spending.RUNNING)
        if reply[1] is None:
            return Spent(Spending.REFUSED)
        try:
            body = self._records.open_packed(owner, flow_id, _answer_field(leg, request_digest), reply[1])
        except Unreadable:
            return Spent(Spending.REFUSED)  # the answer to another request: the digest is part of the binding
        return Spent(Spending.ANSWERED, body)

    async def _begin(self, use: LegUse, leg_ms: int) -> None:
        """Begin a use. If it has not begun and never will, this raises `TaskStoreAway`."""
        began = False
        try:
            began = bool(await self._client.run(BEGIN, [use.mark], [use.token, use.ttl_ms, leg_ms]))
        except TaskStoreDown:
            raise TaskStoreAway from None
        finally:
            if not began:  # it may have begun in the store, so it is ended there
                self.end_use(use, UseEnd.NEVER)
        if not began:
            raise TaskStoreAway

    def end_use(self, use: LegUse, end: UseEnd) -> None:
        """End a use without an answer, in the background and as soon as the store answers."""
        if use.repeated and end is UseEnd.NEVER:
            end = UseEnd.REPEATABLE
        ending = asyncio.create_task(self._end_use(use, _STATE_AFTER[end]))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _end_use(self, use: LegUse, state: str) -> None:
        pause, over = _FIRST_PAUSE_SECONDS, time.monotonic() + use.ttl_ms / 1000
        while time.monotonic() < over:
            with suppress(TaskStoreDown):
                await self._client.run(END_USE, [use.mark], [use.token, state])
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def store_answer(self, owner: str, flow_id: str, leg: int, request_digest: bytes, body: bytes) -> None:
        """Store the answer to the first use of a leg for a minute.

        Raises:
            ValueTooLarge: it is larger than the store accepts, or than the answers that it keeps for one owner.
        """
        sealed = self._records.seal_packed(owner, flow_id, _answer_field(leg, request_digest), body)
        mark, answer = self._keys.spent(owner, flow_id, leg), self._keys.spent_answer(owner, flow_id, leg)
        keys = [mark, answer, self._keys.spent_sizes(owner)]
        if not await self._client.run(KEEP_ANSWER, keys, [sealed, SPENT_ANSWER_MS, SPENT_ANSWER_BYTES]):
            raise ValueTooLarge("The answer", len(sealed), SPENT_ANSWER_BYTES)

    async def aclose(self) -> None:
        """Close all connections."""
        if self._ending:
            _, late = await asyncio.wait(self._ending, timeout=SECONDS)
            for ending in late:
                ending.cancel()
        await self._notices.aclose()
        await self._client.aclose()


class LargeReads:
    """Lets each owner read one large value or page at a time, so that many of them do not delay other owners."""

    def __init__(self) -> None:
        self._of_owner: WeakValueDictionary[str, _Reads] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, owner: str) -> AsyncIterator[None]:
        """Wait until the owner reads nothing large, and read.

        If the store fails meanwhile, this raises `TaskStoreDown`: else it would fail for each waiter in turn.
        """
        reads = self._of_owner.setdefault(owner, _Reads())
        failed = reads.failed
        async with reads.lock:
            if reads.failed != failed:
                raise TaskStoreDown
            try:
                yield
            except TaskStoreDown:
                reads.failed += 1
                raise


class _Reads:
    """The reads of one owner: one at a time, and how many have failed."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.failed = 0


async def read_segments(
    client: RedisClient, reader: RecordReader, place: TaskPlace, after: int, pause: Callable[[], Awaitable[None]]
) -> list[Any]:
    """Return the blocks that a task emitted after a segment, up to the first one that does not open.

    A task may have thousands, so they are opened in portions, with a `pause` before each that has more than one. If it
    expires or is deleted meanwhile, there are none.
    """
    blocks: list[Any] = []
    owner, task_id = split_member(place.member)
    while True:
        entries = await client.command("XRANGE", place.segments, f"({after}", "+", "COUNT", SEGMENTS_AT_ONCE)
        if len(entries) > 1:
            await pause()
        for entry_id, fields in entries:
            after = int(entry_id.partition(b"-")[0])
            try:
                blocks.append(reader.segment(owner, task_id, after, fields))
            except Unreadable:
                return blocks
        if len(entries) < SEGMENTS_AT_ONCE:
            is_gone = not entries and blocks and not await client.command("EXISTS", place.segments)
            return [] if is_gone else blocks


def _text(task_id: bytes) -> str:
    """Return a stored task id. A damaged one becomes the id of no task."""
    return task_id.decode(errors="replace")


def _view_of_new(new: NewTask, retention: Retention, created_ms: int, expires_ms: int) -> TaskView:
    done = new.result is not None
    return TaskView(
        task_id=new.task_id,
        tool=new.tool,
        phase=Phase.DONE if done else Phase.QUEUED,
        created_ms=created_ms,
        updated_ms=created_ms,
        ended_ms=created_ms if done else None,
        expires_ms=expires_ms,
        ttl_ms=expires_ms - created_ms,
        now_ms=created_ms,
        generation=0,
        form=new.form,
        capabilities=new.capabilities,
        scopes=new.scopes,
        progress=rest.progress(new.journal),
        result=new.result,
        kept_ms=retention.ms if retention.counts_from == "ended" else None,
    )


def _retry_after(milliseconds: int) -> int:
    return max(1, -(-int(milliseconds) // 1000))


def _answer_field(leg: int, request_digest: bytes) -> str:
    return f"answer:{leg}:{request_digest.hex()}"
