"""Hands tasks to workers, with Redis Streams."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from gateway.errors import LeaseLost, NoRoomLeft, RejectReason, TaskStoreDown, WorkersLost
from gateway.settings.model import MAX_STORED_BYTES
from gateway.storage.all_tasks import read_totals
from gateway.storage.client import GroupMissing, RedisClient
from gateway.storage.deployment import Deployment
from gateway.storage.lost_tasks import LOOKS_PER_LEASE, LostTasks
from gateway.storage.lua.shared_scripts import MAKE_WAY
from gateway.storage.lua.task_scripts import (
    CLAIM,
    EMIT,
    FINISH,
    GROUP,
    HAND_ON,
    HEARTBEAT,
    KEEP,
    PUT_BACK,
    RELEASE,
    WAIT,
    Script,
)
from gateway.storage.owners import Owners
from gateway.storage.plain_fields import encode_progress
from gateway.storage.pubsub import RECHECK_SECONDS, Subscriber
from gateway.storage.record_reader import RecordReader
from gateway.storage.records import Records, learn
from gateway.storage.redis_keys import RedisKeys, TaskPlace, is_owner, split_member
from gateway.storage.scripts import Changes, Value, pairs, run_on_claim, run_on_task
from gateway.storage.task_store import (
    DEFAULT_MAX_TTL_MS,
    DEFAULT_PARTITIONS,
    read_segments,
)
from gateway.storage.unreadable import Unreadable
from gateway.tasks.model import Phase
from gateway.tasks.ports import Claim, Heartbeat, Kept, TaskQuestion
from gateway.tokens.key_holder import KeyHolder

log = logging.getLogger("gateway.storage")

DEFAULT_LEASE_MS = 30_000
MAX_WAIT_MS = 1000
SEEN_ENTRIES = 2048
"""How far into a queue `make_way` looks for tasks of other owners."""
MOVED_ENTRIES = 256
"""How many entries it moves back if it found none but there may be more, so it sees those next time."""


class RedisWorkQueue:
    """Hands tasks to one worker, whose name no other running worker has.

    All methods raise `TaskStoreDown`. Methods that write for a claim raise `LeaseLost` if the claim no longer holds,
    and `ValueTooLarge` if the store does not accept the value. In both cases they have changed nothing. A call may be
    repeated after `TaskStoreDown`; repeating it has no further effect.

    See `RedisTaskStore`. A task without a heartbeat for `lease_ms` goes to another worker.
    """

    def __init__(
        self,
        client: RedisClient,
        holder: KeyHolder,
        worker_id: str,
        *,
        partitions: int = DEFAULT_PARTITIONS,
        max_ttl_ms: int = DEFAULT_MAX_TTL_MS,
        max_value_bytes: int = MAX_STORED_BYTES,
        lease_ms: int = DEFAULT_LEASE_MS,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._client = client
        self._keys = RedisKeys(holder.audience, partitions)
        self._records = Records(holder, client.telemetry, max_value_bytes)
        self._reader = RecordReader(self._records)
        self._worker_id = worker_id
        self._lease_ms = lease_ms
        self._owners = Owners(client, self._keys, holder, random_bytes)
        self._deployment = Deployment(client, self._keys, self._owners, max_ttl_ms)
        self._notices = Subscriber(client)
        self._lost = LostTasks(client, self._keys, worker_id, lease_ms)

    @property
    def partitions(self) -> int:
        """The number of partitions; a worker reads all of them."""
        return self._keys.partitions

    async def check(self) -> None:
        """See `RedisTaskStore.check`."""
        await self._deployment.check()

    async def claim(
        self,
        partition: int,
        count: int,
        wait_ms: int = MAX_WAIT_MS,
        may_begin: Callable[[str], bool] | None = None,
    ) -> list[Claim]:
        """Claim up to `count` tasks of a partition: those whose worker was lost, and new ones.

        If there is none, this waits for up to `wait_ms` (at most 1000). Call it in a loop, one for each partition. A
        task that has lost too many workers is ended here. `may_begin` is called once for each new task, with its owner.
        A task that may not begin now goes to the end of the queue. None lets all begin.
        """
        await self._deployment.ensure()
        try:
            entries = lost = await self._lost.take_over(partition, count)
            if lost:
                may_begin = None
            else:
                wait_ms = min(wait_ms, MAX_WAIT_MS, self._lease_ms // LOOKS_PER_LEASE)
                queue = self._keys.queue(partition)
                entries = await self._client.read_group(self._worker_id, GROUP, queue, count, wait_ms)
        except GroupMissing:
            # The server came back without its data, so the queue is created again.
            await self._deployment.make_group(partition)
            self._deployment.look_soon()
            return []
        claims = await asyncio.gather(
            *(self._claim(entry_id, fields, may_begin, redelivered=bool(lost)) for entry_id, fields in entries)
        )
        return [claim for claim in claims if claim is not None]

    async def make_way(self, partition: int, owners: Sequence[str], *, further: bool = True) -> bool:
        """Move the tasks of these owners from the head of the queue behind the first task of another owner.

        Return whether the next task now belongs to another owner. If there is none within reach, the next call looks
        `further`: the tasks that were looked at change their order.
        """
        queue, prefix = self._keys.queue(partition), self._keys.task_prefix(partition)
        moved = MOVED_ENTRIES if further else 0
        return bool(await self._client.run(MAKE_WAY, [queue], [prefix, SEEN_ENTRIES, moved, *owners]))

    async def heartbeat(self, claim: Claim) -> Heartbeat:
        """Extend the lease. Call this every third of it."""
        reply: bytes = await self._run(HEARTBEAT, claim, claim.entry_id, self._worker_id)
        return Heartbeat(reply.decode())

    async def keep(self, claim: Claim, kept: Kept) -> None:
        """Add to the stored journal. The change is durable when this returns."""
        changes, learned = self._records.changes(claim, kept)
        progress = b""
        if kept.progress is not None:
            progress = encode_progress(kept.progress)
            changes = self._message(claim, kept.progress.message, changes)
        _check(await self._run(KEEP, claim, progress, *changes.arguments()))
        learn(claim, learned)

    async def emit(self, claim: Claim, seq: int, block: Mapping[str, Any]) -> None:
        """Store segment number `seq`, counted from 1; a stored segment is not replaced.

        If an earlier segment is missing, this raises `ValueError`.
        """
        if seq <= claim.segments:
            return
        sealed, emitted = self._records.seal_segment(claim, seq, block)
        if _check(await self._run(EMIT, claim, seq, sealed, emitted)) == b"gap":
            raise ValueError(f"segment {seq} came before segment {claim.segments + 1}")
        claim.segments, claim.emitted = seq, emitted

    async def segments(self, owner: str, task_id: str, after: int = 0) -> list[Any]:
        """Return what the task has emitted, like `RedisTaskStore.segments`."""
        place = self._keys.place(owner, task_id)
        return await read_segments(self._client, self._reader, place, after, lambda: asyncio.sleep(0))

    async def wait(self, claim: Claim, questions: Mapping[str, TaskQuestion], journal: Mapping[str, Any]) -> None:
        """Store the journal and the questions, by author's key, and wait for the client's answers; the claim ends."""
        changes, _ = self._records.changes(claim, Kept(journal=journal))
        asked = self._records.asked(claim, questions)
        _check(await self._run(WAIT, claim, claim.entry_id, *asked, *changes.arguments()))

    async def finish(
        self, claim: Claim, *, result: Mapping[str, Any] | None = None, error: Mapping[str, Any] | None = None
    ) -> None:
        """End the task with a result or with a JSON-RPC error; the claim ends, and the journal is deleted."""
        name, value = ("result", dict(result or {})) if error is None else ("error", dict(error))
        ended = self._records.ended(claim.owner, claim.task_id, name, value)
        _check(await self._run(FINISH, claim, *pairs(ended)))

    async def release(self, claim: Claim, journal: Mapping[str, Any]) -> None:
        """Store the journal and hand the task back, so another worker can continue it; no attempt is counted."""
        changes, _ = self._records.changes(claim, Kept(journal=journal))
        _check(await self._run(RELEASE, claim, claim.entry_id, *changes.arguments()))

    async def totals(self) -> dict[Phase, int]:
        """Count the tasks of all owners by phase, or raise `TaskStoreDown`."""
        await self._deployment.ensure()
        return await read_totals(self._client, self._keys)

    async def cancellations(self) -> AsyncGenerator[tuple[str, str], None]:
        """Yield (owner, task id) of running tasks as they are cancelled on any worker. Hints, as in `watch`."""
        async with self._notices.listen(self._keys.cancellations()) as listener:
            while True:
                for member in await listener.wait(RECHECK_SECONDS):
                    yield split_member(member)

    async def leave(self) -> None:
        """Declare that this worker claims no more tasks. Those it still holds are redelivered when their leases end."""
        for partition in range(self.partitions):
            await self._lost.forget_workers(partition, leaving=self._worker_id)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._notices.aclose()
        await self._client.aclose()

    async def _claim(
        self,
        entry_bytes: bytes,
        fields: Mapping[bytes, bytes],
        may_begin: Callable[[str], bool] | None = None,
        *,
        redelivered: bool = False,
    ) -> Claim | None:
        entry_id = entry_bytes.decode()
        owner, task_id = split_member(fields.get(b"task", b"").decode(errors="replace"))
        if not is_owner(owner):
            # Nothing says which task it is. It stays until it is older than any task can be.
            self._reader.note(owner, task_id, Unreadable(RejectReason.MALFORMED, "queue"))
            return None
        place = self._keys.place(owner, task_id)
        if may_begin is not None and not may_begin(owner):
            with suppress(TaskStoreDown):  # otherwise it is redelivered when the lease ends
                await run_on_task(self._client, PUT_BACK, place, entry_id, self._worker_id)
            return None
        token = secrets.token_hex(8)
        # On an outage, the entry is redelivered when its lease ends.
        with suppress(TaskStoreDown):
            try:
                if redelivered:
                    await self._look_at(place, entry_id)
                return await self._take(place, entry_id, token)
            except Unreadable as problem:
                # A worker of another release, or with other keys, may be able to read it.
                self._reader.note(owner, task_id, problem)
                await run_on_task(self._client, HAND_ON, place, entry_id, self._worker_id, self._lease_ms, token)
        return None

    async def _look_at(self, place: TaskPlace, entry_id: str) -> None:
        """Read the task of a redelivered entry, so one that was handed on is not claimed again and again.

        Raises `Unreadable` or `TaskStoreDown`.
        """
        stored = await self._client.command("HGETALL", place.task)
        record = {name.decode(errors="replace"): value for name, value in stored.items()}
        if record.get("phase") == Phase.QUEUED.encode():
            self._reader.open_claim(self._reader.claimed(place, entry_id, 0, record), record)

    async def _take(self, place: TaskPlace, entry_id: str, token: str) -> Claim | None:
        """Claim a task, or raise `Unreadable` or `TaskStoreDown`; return None if there is nothing to run."""
        reply = await run_on_task(self._client, CLAIM, place, entry_id, self._worker_id, token)
        if reply[0] not in (b"claimed", b"unreadable"):
            return None
        record = _record_of(reply[2])
        claim = self._reader.claimed(place, entry_id, int(reply[1]), record)
        if reply[0] == b"unreadable":
            raise Unreadable(RejectReason.MALFORMED, "entry")
        if claim.attempt > claim.max_attempts:
            await self._give_up(claim)
            return None
        self._reader.open_claim(claim, record)
        return claim

    async def _give_up(self, claim: Claim) -> None:
        lost = claim.attempt - 1
        log.error("task is given up: its workers were lost", extra={"task": claim.task_id, "lost": lost})
        error = WorkersLost(lost)
        with suppress(LeaseLost, TaskStoreDown):
            await self.finish(claim, error={"code": error.code, "message": error.message, "data": error.data})

    def _message(self, claim: Claim, message: str | None, changes: Changes) -> Changes:
        """Add the message of a progress report to changes, or drop the previous message."""
        if message is None:
            return Changes(changes.dropped | {"message"}, changes.written)
        sealed = self._records.seal(claim.owner, claim.task_id, "message", message)
        return Changes(changes.dropped, {**changes.written, "message": sealed})

    async def _run(self, script: Script, claim: Claim, *args: Value) -> Any:
        return await run_on_claim(self._client, script, self._keys.place(claim.owner, claim.task_id), claim, *args)


def _record_of(flat: Iterable[bytes]) -> dict[str, bytes]:
    parts = iter(flat)
    return {name.decode(errors="replace"): value for name, value in zip(parts, parts, strict=True)}


def _check(reply: Any) -> Any:
    """Return the reply of a script that writes to a claimed task.

    Raises:
        LeaseLost: another worker has the task, or it was cancelled.
        NoRoomLeft: the owner's tasks have used up their bytes.
    """
    if reply in (b"lost", b"cancelled"):
        raise LeaseLost(cancelled=reply == b"cancelled")
    if isinstance(reply, list):
        raise NoRoomLeft(int(reply[1]))
    return reply
