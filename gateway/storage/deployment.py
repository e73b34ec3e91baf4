"""What all processes of a deployment check and agree on before they use one Redis."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass

from gateway.errors import ConfigurationError, TaskStoreAway, TaskStoreDown
from gateway.observability.redis_watch import RedisRisk, risks_of
from gateway.sealing.formats import FIRST, TASK_STORE
from gateway.settings.problems import Problems
from gateway.storage.client import GroupExists, RedisClient
from gateway.storage.lua.shared_scripts import AGREE
from gateway.storage.lua.task_scripts import GROUP
from gateway.storage.owners import Owners
from gateway.storage.redis_keys import RedisKeys

log = logging.getLogger("gateway.storage")

MIN_VERSION = (6, 2)
_AGREED_FOR = 4
"""The numbers of partitions and format are kept for this many maximum task lifetimes, and renewed once in each."""

LOOK_SECONDS = 1.0
"""How long a process may keep using a secret that the store has lost along with its data."""

INSPECT_SECONDS = 10.0
"""How often a process that uses the store checks whether the server may lose tasks."""

_SECRET_MS = 366 * 86_400_000
"""The secret is kept at least this long: the marks of single-use legs can live as long as the largest setting."""


@dataclass(frozen=True, slots=True)
class Inspected:
    """The facts about a suitable store.

    Attributes:
        kind: the kind of server, in words.
        keeps_tasks: whether each server keeps an append-only file, so that a restart loses no task.
    """

    kind: str
    keeps_tasks: bool


class Deployment:
    """The start-up check, repeated later if the server was unreachable at start.

    `owners` names the callers, using the secret that all processes agree on.
    """

    def __init__(self, client: RedisClient, keys: RedisKeys, owners: Owners, max_ttl_ms: int) -> None:
        self._client = client
        self._keys = keys
        self._owners = owners
        self._max_ttl_ms = max_ttl_ms
        self._good_until = self._look_at = float("-inf")
        self._reported = ""
        self._checked_url = client.url
        self._inspect_at = float("-inf")

    async def ensure(self) -> None:
        """Repeat the checks if they have never succeeded or are long past.

        If the server cannot be reached or used, this raises `TaskStoreAway`, and the log says why.
        """
        if self._client.url is not self._checked_url:  # which may be of another server
            self._good_until = self._look_at = float("-inf")
        now = asyncio.get_running_loop().time()
        if now < self._look_at:
            return
        if now >= self._inspect_at and now < self._good_until:
            self._inspect_at = now + INSPECT_SECONDS
            self._client.watch()
        try:
            await (self._look() if now < self._good_until else self.check())
        except ConfigurationError as error:
            if str(error) != self._reported:
                self._reported = str(error)
                log.critical("task store cannot be used", extra={"reason": self._reported})
            raise TaskStoreAway from None
        except TaskStoreDown:
            raise TaskStoreAway from None  # the caller's command was not sent
        self._reported = ""

    async def check(self) -> None:
        """Check the server's version and eviction, agree with other processes, and create the consumer groups.

        Raises:
            ConfigurationError: the server, its format, the number of partitions or the key ring cannot be used.
            TaskStoreDown: the server cannot be reached.
        """
        url = self._client.url
        infos = await self._client.info()
        for info in infos:
            _check_server(info)
        await self._agree()
        self._client.telemetry.redis_watch.see(infos)  # a store that cannot be used has one error, and no warning
        for partition in range(self._keys.partitions):
            await self.make_group(partition)
        now = asyncio.get_running_loop().time()
        self._checked_url = url
        self._good_until, self._look_at = now + self._max_ttl_ms / 1000, now + LOOK_SECONDS

    async def inspect(self) -> Inspected:
        """Report what `check` would find, without changing anything.

        Raises:
            ConfigurationError: lists all problems with the servers, the format, the partitions and the key ring.
            TaskStoreDown: the server cannot be reached.
        """
        problems = Problems()
        infos = await self._client.info()
        for info in infos:
            with problems.noted():
                _check_server(info)
        agreed, secret, format_number = await self._client.command("MGET", *self._agreed_keys())
        with problems.noted():
            self._check_format(format_number)
        if agreed is not None and agreed != b"%d" % self._keys.partitions:
            problems.add(self._other_partitions(agreed))
        if secret is not None:
            with problems.noted():
                self._owners.check(secret)
        problems.raise_any()
        risks = {risk for info in infos for risk in risks_of(info)}
        kinds = ", ".join(dict.fromkeys(_name_of(info) for info in infos))
        return Inspected(kinds, keeps_tasks=RedisRisk.PERSISTENCE not in risks)

    def _agreed_keys(self) -> tuple[str, str, str]:
        return self._keys.agreed_partitions(), self._keys.owner_secret(), self._keys.agreed_format()

    def _other_partitions(self, agreed: bytes) -> str:
        spread = agreed.decode("ascii", "replace")
        return (
            f"GATEWAY_TASK_PARTITIONS: {self._keys.partitions}, but the tasks in Redis are spread over {spread}; "
            f"set it to {spread}, or wait until all tasks have expired"
        )

    def _check_format(self, stored: bytes | None) -> int:
        """Return the store's format number, or raise `ConfigurationError` if this release does not read that format."""
        if not stored:
            return FIRST
        if not stored.isdigit():
            raise ConfigurationError(
                "GATEWAY_REDIS_URL: the format number of the task store is damaged; unless a newer release uses this "
                f"Redis, delete the key {self._keys.agreed_format()}"
            )
        if int(stored) > TASK_STORE.reads:
            raise ConfigurationError(
                f"GATEWAY_REDIS_URL: the task store has format {int(stored)}, and this release reads up to format "
                f"{TASK_STORE.reads}; start the newer release that wrote it, or use another Redis"
            )
        return int(stored)

    def look_soon(self) -> None:
        """Make the next use check whether the store still has what was agreed on."""
        self._look_at = float("-inf")

    async def _look(self) -> None:
        # Set first, so other tasks continue with the current secret.
        self._look_at = asyncio.get_running_loop().time() + LOOK_SECONDS
        try:
            _, secret, format_number = await self._client.command("MGET", *self._agreed_keys())
            behind = self._check_format(format_number) < TASK_STORE.writes
            if behind or not self._owners.is_current(secret):
                await self._agree()
        except BaseException:
            self.look_soon()
            raise

    async def _agree(self) -> None:
        lifetime = _AGREED_FOR * self._max_ttl_ms
        wanted = (self._keys.partitions, lifetime, self._owners.proposal(), max(lifetime, _SECRET_MS))
        arguments = (*wanted, TASK_STORE.reads, TASK_STORE.writes)
        format_number, *agreed = await self._client.run(AGREE, self._agreed_keys(), arguments)
        self._check_format(format_number)
        if len(agreed) < 2:  # the partitions are others
            raise ConfigurationError(self._other_partitions(agreed[0] if agreed else b""))
        await self._owners.learn(agreed[1])

    async def make_group(self, partition: int) -> None:
        """Create a partition's queue and its consumer group, unless they exist."""
        command = ("XGROUP", "CREATE", self._keys.queue(partition), GROUP, "0", "MKSTREAM")
        with suppress(GroupExists):
            await self._client.command(*command)


def _check_server(info: dict[str, object]) -> None:
    problems = Problems()
    version = str(info.get("redis_version", "0.0"))
    if tuple(int(part) for part in version.split(".")[:2]) < MIN_VERSION:
        problems.add(f"GATEWAY_REDIS_URL: the server runs Redis {version}; use 6.2 or newer, or Valkey")
    policy = info.get("maxmemory_policy")
    if policy != "noeviction":
        problems.add(
            f"GATEWAY_REDIS_URL: the server may evict tasks: its maxmemory-policy is {policy}; set it to noeviction"
        )
    problems.raise_any()


def _name_of(info: dict[str, object]) -> str:
    version = info.get("valkey_version")
    return f"Valkey {version}" if version else f"Redis {info.get('redis_version')}"
