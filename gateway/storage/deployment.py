"""What all processes of a deployment must find and agree on before they use one Redis."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from gateway.errors import ConfigurationError, TaskStoreAway, TaskStoreDown
from gateway.storage.client import GroupExists, RedisClient
from gateway.storage.keys import Keys
from gateway.storage.other_scripts import AGREE
from gateway.storage.scripts import GROUP

log = logging.getLogger("gateway.storage")

MIN_VERSION = (6, 2)
_AGREED_FOR = 4
"""The number of partitions is remembered for so many of the longest lives of a task, and renewed once in each."""


class Deployment:
    """The start-up check, made up for later where the server could not be reached at the start.

    Args:
        client: the connection.
        keys: the names of the deployment's keys.
        max_ttl_ms: the longest retention of a task.
    """

    def __init__(self, client: RedisClient, keys: Keys, max_ttl_ms: int) -> None:
        self._client = client
        self._keys = keys
        self._max_ttl_ms = max_ttl_ms
        self._good_until = float("-inf")

    async def ensure(self) -> None:
        """Check again what was not checked for a long time, or never.

        Raises:
            TaskStoreAway: the server cannot be reached, or does not fit; the log says why.
        """
        if asyncio.get_running_loop().time() < self._good_until:
            return
        try:
            await self.check()
        except ConfigurationError as error:
            log.critical("task store does not fit", extra={"reason": str(error)})
            raise TaskStoreAway from None
        except TaskStoreDown:
            raise TaskStoreAway from None  # what is to be done was not sent

    async def check(self) -> None:
        """Check the server's version and eviction, agree on the partitions, and make their consumer groups.

        Raises:
            ConfigurationError: the server or the number of partitions does not fit.
            TaskStoreDown: the server cannot be reached.
        """
        for info in await self._client.info():
            _check_server(info)
        lifetime = _AGREED_FOR * self._max_ttl_ms
        agreed = int(await self._client.run(AGREE, [self._keys.agreed_partitions()], [self._keys.partitions, lifetime]))
        if agreed != self._keys.partitions:
            raise ConfigurationError(
                f"GATEWAY_TASK_PARTITIONS is {self._keys.partitions}, but the tasks in Redis are spread over {agreed}; "
                f"set it to {agreed}, or wait until all tasks have expired"
            )
        for partition in range(self._keys.partitions):
            await self.make_group(partition)
        self._good_until = asyncio.get_running_loop().time() + self._max_ttl_ms / 1000

    async def make_group(self, partition: int) -> None:
        """Make a partition's queue and its consumer group, unless they exist."""
        command = ("XGROUP", "CREATE", self._keys.queue(partition), GROUP, "0", "MKSTREAM")
        with suppress(GroupExists):
            await self._client.command(*command)


def _check_server(info: dict[str, object]) -> None:
    version = str(info.get("redis_version", "0.0"))
    if tuple(int(part) for part in version.split(".")[:2]) < MIN_VERSION:
        raise ConfigurationError(
            f"the server at GATEWAY_REDIS_URL is Redis {version}; tasks need 6.2 or newer, or Valkey"
        )
    policy = info.get("maxmemory_policy")
    if policy != "noeviction":
        raise ConfigurationError(
            f"the Redis at GATEWAY_REDIS_URL may evict tasks: its maxmemory-policy is {policy}; set it to noeviction"
        )
