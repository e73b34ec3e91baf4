"""Takes over the tasks of workers that are gone: nothing renewed their lease."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from gateway.storage.client import RedisClient
from gateway.storage.lua.shared_scripts import FORGET_CONSUMERS
from gateway.storage.lua.task_scripts import GROUP
from gateway.storage.redis_keys import RedisKeys

LOOKS_PER_LEASE: Final = 6
"""How often per lease each partition is searched for lost tasks."""

_START: Final = b"0-0"
_FORGET_WORKER_MS: Final = 3_600_000


class LostTasks:
    """Looks for entries of the queues whose lease has ended, for one worker."""

    def __init__(self, client: RedisClient, keys: RedisKeys, worker_id: str, lease_ms: int) -> None:
        self._client = client
        self._keys = keys
        self._worker_id = worker_id
        self._lease_ms = lease_ms
        self._next_look = [0.0] * keys.partitions
        self._looked_until = [_START] * keys.partitions

    async def take_over(self, partition: int, count: int) -> list[Any]:
        """Take over up to `count` entries whose lease has ended, or none before the next look is due.

        A look goes through all entries once, in several calls if necessary. So tasks that this worker cannot read are
        tried once in each look, and hide no others.

        Raises:
            GroupMissing: the server came back without its data.
            TaskStoreDown: the server is not available.
        """
        now = asyncio.get_running_loop().time()
        if now < self._next_look[partition]:
            return []
        queue = self._keys.queue(partition)
        while True:
            cursor = self._looked_until[partition]
            reply = await self._client.command(
                "XAUTOCLAIM", queue, GROUP, self._worker_id, self._lease_ms, cursor, "COUNT", count
            )
            self._looked_until[partition] = reply[0]
            # Redis 6.2 returns nil for entries that no longer exist.
            entries = [entry for entry in reply[1] if entry and entry[0]]
            if reply[0] == _START:
                self._next_look[partition] = now + self._lease_ms / 1000 / LOOKS_PER_LEASE
                await self.forget_workers(partition)
            if entries or reply[0] == _START:
                return entries

    async def forget_workers(self, partition: int, leaving: str = "") -> None:
        """Remove workers without tasks from a queue: those that have been silent for an hour, and the one `leaving`."""
        await self._client.run(FORGET_CONSUMERS, [self._keys.queue(partition)], [_FORGET_WORKER_MS, leaving])
