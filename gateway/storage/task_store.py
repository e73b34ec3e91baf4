"""The port `gateway.tasks.ports.TaskStore` on Redis."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final
from weakref import WeakValueDictionary

from typing_extensions import override

from gateway.errors import TaskIdTaken, TaskStoreAway, TaskStoreDown, TooManyTaskBytes, TooManyTasks, ValueTooLarge
from gateway.runtime.turns import Turns
from gateway.sealing.principal import Principal
from gateway.settings.model import MAX_STORED_BYTES
from gateway.storage import scripts
from gateway.storage.client import SECONDS, RedisClient
from gateway.storage.deployment import Deployment, Inspected
from gateway.storage.owners import Owners
from gateway.storage.pubsub import RECHECK_SECONDS, Subscriber, topic_of
from gateway.storage.record_reader import RecordReader
from gateway.storage.records import Records
from gateway.storage.redis_keys import PHASES, RedisKeys, TaskPlace, split_member
from gateway.storage.replica_channel import ReplicaChannel
from gateway.storage.task_scripts import BRIEF_FIELDS
from gateway.storage.unreadable import Unreadable
from gateway.tasks import stored_journal as rest
from gateway.tasks.model import Phase, Retention, TaskView
from gateway.tasks.ports import LegUse, NewTask, Spending, Spent, TaskPage, TaskPlaceMark, TaskStore, UseEnd
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


SEGMENTS_AT_ONCE: Final = 512
"""How many segments are opened in one turn."""

BRIEFS_AT_ONCE: Final = 8
"""How many tasks of a page are opened in one turn."""


class RedisTaskStore(TaskStore):
    """Stores tasks for their owners, who are spread over the partitions.

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

    @override
    async def check(self) -> None:
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

    @override
    async def owner(self, principal: Principal | None) -> str:
        await self._deployment.ensure()
        return self._owners.name(principal)

    @override
    async def create(self, new: NewTask, quota: int, quota_bytes: int = DEFAULT_TASK_BYTES) -> TaskView:
        await self._deployment.ensure()
        place = self._keys.place(new.owner, new.task_id)
        retention = Retention(new.retention.counts_from, max(1, min(new.retention.ms, self._max_ttl_ms)))
        about, fields = self._records.created(new)
        create = partial(
            scripts.create,
            self._client,
            place,
            quota=quota,
            quota_bytes=quota_bytes,
            max_ttl_ms=self._max_ttl_ms,
            retention=retention,
            request=new.request,
            about=about,
            fields=fields,
            order=self._keys.order(new.owner, new.order),
            order_ms=new.order_ms,
        )
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

    @override
    async def get(self, owner: str, task_id: str) -> TaskView | None:
        return await self._view(owner, task_id, await scripts.read(self._client, self._keys.place(owner, task_id)))

    async def _view(self, owner: str, task_id: str, reply: Any) -> TaskView | None:
        """Return the task from a script's `view()`. A large one is read now, when it is the owner's turn."""
        if not reply or len(reply) > 1:
            return self._reader.view(owner, task_id, reply)
        async with self._large_reads.of(owner):
            reply = await scripts.read(self._client, self._keys.place(owner, task_id), whole=True)
            await self._turns.begin(None, owner)
            return self._reader.view(owner, task_id, reply)

    @override
    async def page(self, owner: str, after: TaskPlaceMark | None, limit: int) -> TaskPage:
        listed = await scripts.page(self._client, self._keys.owner_index(owner), limit + 1, after)
        marks = [TaskPlaceMark(*each) for each in listed]
        more, marks = len(marks) > limit, marks[:limit]
        if not marks:
            return TaskPage([], None)
        return TaskPage(await self.briefs(owner, [mark.task_id for mark in marks]), marks[-1] if more else None)

    @override
    async def briefs(self, owner: str, task_ids: Sequence[str]) -> list[TaskView]:
        keys = [self._keys.place(owner, task_id).task for task_id in task_ids]
        views = []
        async with self._large_reads.of(owner):
            now_ms, read = await scripts.briefs(self._client, keys)
            for number, (task_id, key, values) in enumerate(zip(task_ids, keys, read, strict=True)):
                fields = values or await self._client.command("HMGET", key, *BRIEF_FIELDS)  # it is large
                if not values or number % BRIEFS_AT_ONCE == 0:
                    await self._turns.begin(None, owner)
                views.append(self._reader.brief(owner, task_id, now_ms, fields))
        return [view for view in views if view is not None]

    @override
    async def of_request(self, owner: str, request: str) -> str | None:
        task_id: bytes | None = await self._command("HGET", self._keys.requests(owner), request)
        return None if task_id is None else _text(task_id)

    @override
    async def answer(self, owner: str, task_id: str, answers: Mapping[str, Mapping[str, Any]]) -> TaskView | None:
        sealed = {key: self._records.seal(owner, task_id, f"n:{key}", dict(answer)) for key, answer in answers.items()}
        reply = await scripts.answer(self._client, self._keys.place(owner, task_id), sealed)
        if reply and reply[0] == b"no room":
            raise TooManyTaskBytes(int(reply[2]), _retry_after(reply[1]))
        return await self._view(owner, task_id, reply)

    @override
    async def cancel(self, owner: str, task_id: str, *, withdrawn: bool = False) -> TaskView | None:
        place = self._keys.place(owner, task_id)
        reply = await scripts.cancel(self._client, place, self._keys.cancellations(), withdrawn=withdrawn)
        return await self._view(owner, task_id, reply)

    @override
    async def delete(self, owner: str, task_id: str, *, chosen: bool = False) -> TaskView | None:
        view = await self.get(owner, task_id)
        if view is None:
            return None
        place = self._keys.place(owner, task_id)
        channel, token = self._keys.cancellations(), secrets.token_hex(8)
        return view if await scripts.delete(self._client, place, channel, token, chosen=chosen) else None

    @override
    async def deliver(self, owner: str, task_id: str, stream: str, ms: int) -> bool:
        return await scripts.deliver(self._client, self._keys.place(owner, task_id), stream, max(0, ms))

    async def segments(self, owner: str, task_id: str, after: int = 0) -> list[Any]:
        """See `gateway.tasks.ports.TaskStore.segments`. A segment that does not open ends the list."""
        async with self._large_reads.of(owner):
            place = self._keys.place(owner, task_id)
            return await read_segments(self._client, self._reader, place, after, lambda: self._turns.begin(None, owner))

    @override
    async def watch(self, owner: str, task_ids: Collection[str]) -> AsyncGenerator[str, None]:
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
        """See `gateway.tasks.ports.TaskStore.spend`.

        This takes two scripts. The first one makes a reservation, which expires if the second does not follow soon. So
        a leg is not lost to a replica that dies in between or never learns that it got the reservation.
        """
        mark, answer = self._keys.spent(owner, flow_id, leg), self._keys.spent_answer(owner, flow_id, leg)
        token, request, ttl_ms = secrets.token_hex(8), request_digest.hex()[:_REQUEST_DIGITS], max(1, ttl_ms)
        try:
            reply = await scripts.spend(
                self._client, mark, answer, use=token, request=request, hold_ms=_HOLD_MS, ttl_ms=ttl_ms
            )
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
            began = await scripts.begin_use(self._client, use.mark, use.token, ttl_ms=use.ttl_ms, leg_ms=leg_ms)
        except TaskStoreDown:
            raise TaskStoreAway from None
        finally:
            if not began:  # it may have begun in the store, so it is ended there
                self.end_use(use, UseEnd.NEVER)
        if not began:
            raise TaskStoreAway

    @override
    def end_use(self, use: LegUse, end: UseEnd) -> None:
        if use.repeated and end is UseEnd.NEVER:
            end = UseEnd.REPEATABLE
        ending = asyncio.create_task(self._end_use(use, _STATE_AFTER[end]))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _end_use(self, use: LegUse, state: str) -> None:
        pause, over = _FIRST_PAUSE_SECONDS, time.monotonic() + use.ttl_ms / 1000
        while time.monotonic() < over:
            with suppress(TaskStoreDown):
                await scripts.end_use(self._client, use.mark, use.token, state)
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    @override
    async def store_answer(self, owner: str, flow_id: str, leg: int, request_digest: bytes, body: bytes) -> None:
        sealed = self._records.seal_packed(owner, flow_id, _answer_field(leg, request_digest), body)
        mark, answer = self._keys.spent(owner, flow_id, leg), self._keys.spent_answer(owner, flow_id, leg)
        if not await scripts.keep_answer(self._client, mark, answer, self._keys.spent_sizes(owner), sealed):
            raise ValueTooLarge("The answer", len(sealed), scripts.SPENT_ANSWER_BYTES)

    async def aclose(self) -> None:
        """See `gateway.tasks.ports.TaskStore.aclose`. Closes the client too."""
        if self._ending:
            _, late = await asyncio.wait(self._ending, timeout=SECONDS)
            for ending in late:
                ending.cancel()
        await self._notices.aclose()
        await self._client.aclose()

    async def _command(self, *command: Any) -> Any:
        return await self._client.command(*command)


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

    A task may have thousands, so they are opened in portions, with a `pause` before each that has more than one.
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
            return blocks


async def read_totals(client: RedisClient, keys: RedisKeys) -> dict[Phase, int]:
    """Count the tasks of all owners by phase: one script for each partition."""
    began = time.monotonic()
    counted = await asyncio.gather(
        *(scripts.totals(client, keys.phase_indexes(partition)) for partition in range(keys.partitions))
    )
    for now_ms, _ in counted:
        client.compare_clocks(now_ms, began)
    by_phase = zip(*(counts for _, counts in counted), strict=True)
    return {phase: sum(counts) for phase, counts in zip(PHASES, by_phase, strict=True)}


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
