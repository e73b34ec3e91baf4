"""Runs the Lua scripts about one task. Their comments say what their arguments are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeAlias

from gateway.storage.client import RedisClient
from gateway.storage.lua.task_scripts import Script
from gateway.storage.redis_keys import TaskPlace, split_member
from gateway.tasks.ports import Claim

Value: TypeAlias = bytes | str | int
"""The value of a field in a record."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes that a script makes in a record: names of fields to delete, and fields to set."""

    dropped: frozenset[str] = frozenset()
    written: Mapping[str, Value] = field(default_factory=dict)

    def arguments(self) -> list[Value]:
        """Return the script arguments: the number of fields to drop, their names, then pairs of field and value."""
        return [len(self.dropped), *self.dropped, *pairs(self.written)]


def pairs(fields: Mapping[str, Value]) -> Iterable[Value]:
    """Return script arguments: each field, followed by its value."""
    return chain.from_iterable(fields.items())


async def run_on_task(
    client: RedisClient, script: Script, place: TaskPlace, *args: Value, more_keys: tuple[str, ...] = ()
) -> Any:
    """Run a script with the arguments from its fourth one on, and return its reply; for errors, see `RedisClient`."""
    _, task_id = split_member(place.member)
    return await client.run(script, (*place.keys, *more_keys), (place.member, task_id, place.channel, *args))


async def run_on_claim(client: RedisClient, script: Script, place: TaskPlace, claim: Claim, *args: Value) -> Any:
    """Run a script that a worker may run on a task it holds, with the arguments from its sixth one on."""
    return await run_on_task(client, script, place, claim.generation, claim.token, *args)
