"""The tasks of all owners, for operators. Sealed fields are not read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Any

import msgspec

from gateway.storage.client import RedisClient
from gateway.storage.lua.shared_scripts import FACTS, PAGE, TOTALS
from gateway.storage.lua.task_scripts import CANCEL, PLAIN_FIELDS
from gateway.storage.plain_fields import read_plain
from gateway.storage.redis_keys import PHASES, RedisKeys, is_owner, split_member
from gateway.storage.scripts import run_on_task
from gateway.tasks.model import ENDED, Phase

AT_ONCE = 500
"""How many tasks are read together."""

UNFINISHED = frozenset(Phase) - ENDED


class TaskFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that an operator may know about a task.

    Attributes:
        owner: the name of its owner in the store, which reveals nothing about the caller.
        open_questions: how many questions of a waiting task have no answer yet.
        lost: how many workers were lost while they ran it.
        worker: the worker that holds a running task, "" if none does.
        silent_ms: how long that worker has sent no heartbeat.
        readable: whether this release may change its record.
    """

    owner: str
    task_id: str
    tool: str
    phase: Phase
    created_ms: int
    updated_ms: int
    expires_ms: int
    now_ms: int
    open_questions: int
    lost: int
    worker: str
    silent_ms: int
    readable: bool


class AllTasks:
    """Lists and cancels the tasks of all owners. Every method may raise `TaskStoreDown`."""

    def __init__(self, client: RedisClient, keys: RedisKeys) -> None:
        self._client = client
        self._keys = keys

    async def totals(self) -> dict[Phase, int]:
        """Count the tasks by phase."""
        return await read_totals(self._client, self._keys)

    async def walk(
        self, phases: Collection[Phase], wanted: Callable[[str, str], bool] = lambda _owner, _task_id: True
    ) -> AsyncIterator[TaskFacts]:
        """Yield the tasks in these phases whose owner and id are `wanted`.

        A task that changes its phase meanwhile may come twice or not at all.
        """
        for partition in range(self._keys.partitions):
            for phase in phases:
                after: tuple[int, str] | None = None
                while listed := await self._client.run(
                    PAGE, [self._keys.phase_index(partition, phase)], (AT_ONCE, *(after or ("", "")))
                ):
                    after = int(listed[-1]), listed[-2].decode(errors="replace")
                    named = [split_member(member.decode(errors="replace")) for member in listed[::2]]
                    chosen = [name for name in named if is_owner(name[0]) and wanted(*name)]
                    for facts in await self._read(partition, phase, chosen):
                        yield facts

    async def cancel(self, task: TaskFacts) -> TaskFacts | None:
        """Cancel a task for good, as its owner can, and return it as it is then; None if it no longer exists.

        A task that has ended stays as it is, and so does one that this release may not change.
        """
        place = self._keys.place(task.owner, task.task_id)
        await run_on_task(self._client, CANCEL, place, self._keys.cancellations(), "")
        read = await self._read(place.partition, task.phase, [(task.owner, task.task_id)])
        return read[0] if read else None

    async def _read(self, partition: int, phase: Phase, named: Sequence[tuple[str, str]]) -> list[TaskFacts]:
        """Return the facts of tasks, which an index has in this phase."""
        if not named:
            return []
        places = [self._keys.place(*name) for name in named]
        keys = [self._keys.queue(partition), *(place.task for place in places)]
        now_ms, *read = await self._client.run(FACTS, keys, ())
        return [
            _facts(name, phase, now_ms, values)
            for name, values in zip(named, read, strict=True)
            if any(value is not None for value in values[2:])
        ]


async def read_totals(client: RedisClient, keys: RedisKeys) -> dict[Phase, int]:
    """Count the tasks of all owners by phase: one script for each partition."""
    began = time.monotonic()
    counted = await asyncio.gather(
        *(client.run(TOTALS, keys.phase_indexes(partition), ()) for partition in range(keys.partitions))
    )
    for now_ms, *_ in counted:
        client.compare_clocks(now_ms, began)
    by_phase = zip(*(counts for _, *counts in counted), strict=True)
    return {phase: sum(counts) for phase, counts in zip(PHASES, by_phase, strict=True)}


def _facts(name: tuple[str, str], phase: Phase, now_ms: int, values: Sequence[Any]) -> TaskFacts:
    worker, silent_ms, *stored = values
    plain = read_plain(dict(zip(PLAIN_FIELDS, stored, strict=True)))
    return TaskFacts(
        owner=name[0],
        task_id=name[1],
        tool=plain.about.tool,
        phase=phase if plain.problem is not None else plain.phase,
        created_ms=plain.created_ms,
        updated_ms=plain.updated_ms,
        expires_ms=plain.expires_ms,
        now_ms=now_ms,
        open_questions=len(plain.open_keys),
        lost=plain.lost,
        worker=worker.decode(errors="replace"),
        silent_ms=silent_ms,
        readable=plain.problem is None,
    )
