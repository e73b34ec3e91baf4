"""One typed function for each Lua script. Only these functions build the keys and arguments of scripts.

All raise what `gateway.storage.client.RedisClient.run` raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

from gateway.sealing.formats import TASK_STORE
from gateway.storage import shared_scripts, task_scripts
from gateway.storage.client import RedisClient
from gateway.storage.redis_keys import TaskPlace, split_member
from gateway.storage.task_scripts import Script
from gateway.tasks.model import Retention
from gateway.tasks.ports import Claim

SPENT_ANSWER_BYTES: Final = 16 * 2**20
"""How many bytes of answers of single-use legs are kept for one owner, as they are sealed. The first may be larger."""

Value: TypeAlias = bytes | str | int
"""The value of a field in a record."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes that a script makes in a record: names of fields to delete, and fields to set."""

    dropped: frozenset[str] = frozenset()
    written: Mapping[str, Value] = field(default_factory=dict)

    def arguments(self) -> list[Value]:
        """Return the script arguments: the number of fields to drop, their names, then pairs of field and value."""
        return [len(self.dropped), *self.dropped, *_pairs(self.written)]


def _pairs(fields: Mapping[str, Value]) -> Iterable[Value]:
    return chain.from_iterable(fields.items())


async def _of_task(client: RedisClient, script: Script, place: TaskPlace, *args: Value) -> Any:
    _, task_id = split_member(place.member)
    return await client.run(script, place.keys, (place.member, task_id, place.channel, *args))


async def _of_claim(client: RedisClient, script: Script, place: TaskPlace, claim: Claim, *args: Value) -> Any:
    return await _of_task(client, script, place, claim.generation, claim.token, *args)


async def create(
    client: RedisClient,
    place: TaskPlace,
    *,
    quota: int,
    quota_bytes: int,
    max_ttl_ms: int,
    retention: Retention,
    request: str,
    about: bytes,
    fields: Mapping[str, Value],
    order: str = "",
    order_ms: int = 0,
) -> Any:
    """Store a task, and queue it unless it has a result.

    Its owner may have `quota` tasks, which may use `quota_bytes` together. The task is found by `request`, "" for
    nothing. The facts `about` it are unsealed, with a token that distinguishes this creation from any other. The key
    `order` remembers for `order_ms` which task an order created.
    """
    _, task_id = split_member(place.member)
    limits = (quota, quota_bytes, max_ttl_ms, retention.ms, retention.counts_from)
    arguments = (place.member, task_id, place.channel, *limits, request, about, *_pairs(fields), order_ms)
    keys = (*place.keys, order) if order_ms else place.keys
    return await client.run(task_scripts.CREATE, keys, arguments)


async def read(client: RedisClient, place: TaskPlace, *, whole: bool = False) -> Any:
    """Return the view of a task. That of a large one has no fields unless the `whole` task is asked for."""
    return await _of_task(client, task_scripts.READ, place, "whole" if whole else "")


async def answer(client: RedisClient, place: TaskPlace, sealed: Mapping[str, str]) -> Any:
    """Record answers by wire key; return the view of the task, or that there is no room."""
    return await _of_task(client, task_scripts.ANSWER, place, *_pairs(sealed))


async def cancel(client: RedisClient, place: TaskPlace, cancellations: str, *, withdrawn: bool) -> Any:
    """Cancel a task at its owner's request; return its view.

    Workers listen to the channel `cancellations`. It was `withdrawn` if the request that created it was cancelled.
    """
    return await _of_task(client, task_scripts.CANCEL, place, cancellations, "withdrawn" if withdrawn else "")


async def delete(client: RedisClient, place: TaskPlace, cancellations: str, token: str, *, chosen: bool) -> bool:
    """Delete a task at its owner's request; return whether it was deleted.

    Workers listen to the channel `cancellations`. The token distinguishes a repetition of this deletion from another
    one. An id that the client has chosen stays taken for the time the task would have lived.
    """
    remembered_ms = "" if chosen else task_scripts.DELETED_MS
    arguments = (cancellations, token, remembered_ms, task_scripts.DELETED_IDS)
    return bool(await _of_task(client, task_scripts.DELETE, place, *arguments) == b"deleted")


async def deliver(client: RedisClient, place: TaskPlace, stream: str, ms: int) -> bool:
    """Reserve the delivery of a task's questions for a stream; return whether the stream holds the reservation."""
    return bool(await _of_task(client, task_scripts.DELIVER, place, stream, ms))


async def claim(client: RedisClient, place: TaskPlace, entry_id: str, worker_id: str, token: str) -> Any:
    """Take a task off its queue; the token distinguishes a repetition of this claim from another one."""
    return await _of_task(client, task_scripts.CLAIM, place, entry_id, worker_id, token)


async def hand_on(
    client: RedisClient, place: TaskPlace, entry_id: str, worker_id: str, *, idle_ms: int, token: str
) -> None:
    """Give back a task that a worker cannot read, as if it had been idle for some time; no attempt is counted."""
    await _of_task(client, task_scripts.HAND_ON, place, entry_id, worker_id, idle_ms, token)


async def put_back(client: RedisClient, place: TaskPlace, entry_id: str, worker_id: str) -> None:
    """Move a task to the end of its queue instead of starting it."""
    await _of_task(client, task_scripts.PUT_BACK, place, entry_id, worker_id)


async def heartbeat(client: RedisClient, place: TaskPlace, claim: Claim, worker_id: str) -> bytes:
    """Extend a lease; return the state of the claim."""
    reply: bytes = await _of_claim(client, task_scripts.HEARTBEAT, place, claim, claim.entry_id, worker_id)
    return reply


async def keep(client: RedisClient, place: TaskPlace, claim: Claim, progress: bytes | None, changes: Changes) -> Any:
    """Add to the journal of a running task."""
    return await _of_claim(client, task_scripts.KEEP, place, claim, progress or "", *changes.arguments())


async def emit(client: RedisClient, place: TaskPlace, claim: Claim, *, number: int, sealed: str, emitted: int) -> Any:
    """Append a segment; `emitted` is the size of all segments including it."""
    return await _of_claim(client, task_scripts.EMIT, place, claim, number, sealed, emitted)


async def wait(
    client: RedisClient,
    place: TaskPlace,
    claim: Claim,
    *,
    open_keys: bytes,
    counts: bytes,
    questions: str,
    changes: Changes,
) -> Any:
    """Make a running task wait for its client.

    `open_keys` are the wire keys of the questions, which are sealed; `counts` says how often each was asked. `changes`
    are those of the journal.
    """
    asked = (claim.entry_id, open_keys, counts, questions)
    return await _of_claim(client, task_scripts.WAIT, place, claim, *asked, *changes.arguments())


async def finish(client: RedisClient, place: TaskPlace, claim: Claim, ended: Mapping[str, Value]) -> Any:
    """End a running task with its outcome: `result` or `error` first, then more fields."""
    return await _of_claim(client, task_scripts.FINISH, place, claim, *_pairs(ended))


async def release(client: RedisClient, place: TaskPlace, claim: Claim, changes: Changes) -> Any:
    """Hand a running task back."""
    return await _of_claim(client, task_scripts.RELEASE, place, claim, claim.entry_id, *changes.arguments())


class Agreed(NamedTuple):
    """What a deployment agrees on.

    The number of partitions is None if the format, b"" for none, is unknown. The sealed secret is None unless the
    format is known and the number is the proposed one.
    """

    format: bytes
    partitions: bytes | None = None
    secret: bytes | None = None


async def agree(
    client: RedisClient, keys: tuple[str, str, str], *, partitions: int, partitions_ms: int, secret: str, secret_ms: int
) -> Agreed:
    """Agree on the store's format, a number of partitions and a secret, each for some time.

    The keys are those of the number of partitions, of the secret, and of the format number. The format number lives as
    long as that of the partitions. The proposed secret is sealed.
    """
    arguments = (partitions, partitions_ms, secret, secret_ms, TASK_STORE.reads, TASK_STORE.writes)
    return Agreed(*await client.run(shared_scripts.AGREE, keys, arguments))


async def publish(client: RedisClient, key: str, channel: str, message: str) -> None:
    """Publish on a channel, through the server that holds a key."""
    await client.run(shared_scripts.TELL, [key], [channel, message])


async def replace(client: RedisClient, key: str, old: bytes, new: bytes) -> bool:
    """Replace a value for the rest of its lifetime if it is still the old one; return whether it was."""
    return bool(await client.run(shared_scripts.REPLACE, [key], [old, new]))


async def spend(
    client: RedisClient, mark: str, answer_key: str, *, use: str, request: str, hold_ms: int, ttl_ms: int
) -> Any:
    """Reserve something that can be used once, for `hold_ms` until the use begins.

    `mark` and `answer_key` are the keys of its mark, which lives for `ttl_ms`, and of the answer to the first use.
    """
    return await client.run(shared_scripts.SPEND, [mark, answer_key], [use, request, hold_ms, ttl_ms])


async def begin_use(client: RedisClient, mark: str, use: str, *, ttl_ms: int, leg_ms: int) -> bool:
    """Begin a use that may take up to `leg_ms`; return whether it may begin."""
    return bool(await client.run(shared_scripts.BEGIN, [mark], [use, ttl_ms, leg_ms]))


async def end_use(client: RedisClient, mark: str, use: str, state: str) -> None:
    """End a use that has no answer, and set the state of its mark; "" removes the mark."""
    await client.run(shared_scripts.END_USE, [mark], [use, state])


async def keep_answer(client: RedisClient, mark: str, answer_key: str, sizes: str, sealed: str) -> bool:
    """End a use with its answer, and return whether the owner has room for it. `sizes` counts the owner's answers."""
    limits = (shared_scripts.SPENT_ANSWER_MS, SPENT_ANSWER_BYTES)
    return bool(await client.run(shared_scripts.KEEP_ANSWER, [mark, answer_key, sizes], [sealed, *limits]))


async def forget_consumers(client: RedisClient, queue: str, idle_ms: int, leaving: str = "") -> None:
    """Forget consumers that hold no entries: those idle for this long, and the one that is leaving."""
    await client.run(shared_scripts.FORGET_CONSUMERS, [queue], [idle_ms, leaving])


async def make_way(
    client: RedisClient, queue: str, task_prefix: str, *, seen: int, moved: int, owners: Iterable[str]
) -> bool:
    """Move unstarted tasks of these owners behind the first task of another one; return whether there is one.

    Look at `seen` entries. If all of them are of these owners and there may be more, move `moved` of them.
    """
    return bool(await client.run(shared_scripts.MAKE_WAY, [queue], [task_prefix, seen, moved, *owners]))


async def page(
    client: RedisClient, owner_index: str, limit: int, after: tuple[int, str] | None
) -> list[tuple[int, str]]:
    """Return the expiry and id of an owner's living tasks in this order, starting after the mark `after`."""
    listed = await client.run(shared_scripts.PAGE, [owner_index], (limit, *(after or ("", ""))))
    return [(int(listed[i + 1]), listed[i].decode(errors="replace")) for i in range(0, len(listed), 2)]


async def briefs(client: RedisClient, tasks: Sequence[str]) -> tuple[int, list[list[Any]]]:
    """Read summaries of one owner's tasks; return the time of reading, and the fields of each, none of a large one."""
    now_ms, *read = await client.run(shared_scripts.BRIEFS, tasks, ())
    return now_ms, read


async def facts(client: RedisClient, queue: str, tasks: Sequence[str]) -> tuple[int, list[list[Any]]]:
    """Read what is not sealed of one partition's tasks; return the time of reading, and the values of each task.

    These are the worker that holds it, how long that has been silent, and the values of `PLAIN_FIELDS`.
    """
    now_ms, *read = await client.run(shared_scripts.FACTS, [queue, *tasks], ())
    return now_ms, read


async def totals(client: RedisClient, indexes: Sequence[str]) -> tuple[int, list[int]]:
    """Count the living tasks in each index; return the time of counting, and the counts."""
    now_ms, *counts = await client.run(shared_scripts.TOTALS, indexes, ())
    return now_ms, counts
