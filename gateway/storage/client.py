"""The connection to Redis: one server or a cluster, over TCP, TLS or a Unix socket, within a time limit.

Under load, the commands that wait while another batch is on its way travel together: one write and one read for many
tasks. Everything that goes wrong is `TaskStoreDown`; the log says what, once for each outage.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeAlias

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.client import PubSub
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import NoScriptError, RedisError, ResponseError

from gateway.errors import ConfigurationError, TaskStoreDown
from gateway.settings import REDIS_SCHEMES
from gateway.storage.scripts import Script

log = logging.getLogger("gateway.storage")

SECONDS = 2.0
"""How long anything may take that does not wait on purpose."""

_CONNECT_SECONDS = 1.0
_CONNECTIONS = 64
_BATCHES = 2
_BATCH_COMMANDS = 200
_CLUSTER = "redis+cluster://"
_TLS_CLUSTER = "rediss+cluster://"

Command: TypeAlias = tuple[Any, ...]


class _Waiting(NamedTuple):
    command: Command
    reply: asyncio.Future[Any]


class GroupMissing(Exception):
    """A stream has no such consumer group."""


class GroupExists(Exception):
    """A stream has the consumer group already."""


def connect(url: str) -> RedisClient:
    """Make a client for the value of `GATEWAY_REDIS_URL`. Connects to nothing yet.

    `redis://`, `rediss://` (TLS) and `unix://` are one server; `redis+cluster://` and `rediss+cluster://` name one
    node of a cluster. Options of redis-py may follow as a query, such as `?ssl_ca_certs=/etc/ca.pem`.

    Raises:
        ConfigurationError: the URL is none of these. It never shows the password.
    """
    if not url.startswith(REDIS_SCHEMES):
        raise ConfigurationError(f"GATEWAY_REDIS_URL must start with one of {', '.join(REDIS_SCHEMES)}")
    options: dict[str, Any] = {
        "socket_timeout": SECONDS,
        "socket_connect_timeout": _CONNECT_SECONDS,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "driver_info": None,
    }
    try:
        if url.startswith((_CLUSTER, _TLS_CLUSTER)):
            plain = url.replace("+cluster", "", 1)
            parse_url(plain)
            # Long enough to find a slot's new server; the time limit of a command ends it.
            options["retry"] = Retry(ExponentialBackoff(cap=0.25, base=0.02), 6)
            return RedisClient(lambda: RedisCluster.from_url(plain, max_connections=_CONNECTIONS, **options))
        pool = BlockingConnectionPool.from_url(url, max_connections=_CONNECTIONS, timeout=SECONDS, **options)
    except (ValueError, TypeError, RedisError):
        raise ConfigurationError("GATEWAY_REDIS_URL cannot be read; it must be like redis://host:6379/0") from None
    return RedisClient(lambda: Redis.from_pool(pool))


class RedisClient:
    """Runs commands and scripts. Used by one event loop.

    Args:
        make: makes redis-py's client, when it is first needed.
    """

    def __init__(self, make: Callable[[], Redis | RedisCluster]) -> None:
        self._make = make
        self._redis: Redis | RedisCluster | None = None
        self._waiting: list[_Waiting] = []
        self._batches: set[asyncio.Task[None]] = set()
        self._sending = 0
        self._down = False

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run a script; a server that does not know it gets its text.

        Raises:
            TaskStoreDown: it did not answer in time, or with an error.
        """
        try:
            return await self.command("EVALSHA", script.sha, len(keys), *keys, *args)
        except NoScriptError:
            return await self.command("EVAL", script.text, len(keys), *keys, *args)

    async def command(self, *command: Any) -> Any:
        """Run a command that does not wait on purpose.

        Raises:
            TaskStoreDown: it did not answer in time, or with an error.
            GroupMissing, GroupExists: for commands about consumer groups.
            NoScriptError: for `EVALSHA`.
        """
        redis = self._client()
        try:
            async with asyncio.timeout(SECONDS):
                if isinstance(redis, RedisCluster):
                    reply = await _repeatable(lambda: redis.execute_command(*command))
                else:
                    reply = await self._batched(redis, command)
        except NoScriptError:
            raise
        except (RedisError, OSError, TimeoutError) as error:
            raise self._failed(error) from None
        self._worked()
        return reply

    async def read_group(self, consumer: str, group: str, key: str, count: int, wait_ms: int) -> list[Any]:
        """Read new entries of a stream for a consumer, waiting for one if there is none.

        Raises:
            GroupMissing: the stream has no such group.
            TaskStoreDown: it did not answer in time, or with another error.
        """
        block = ("BLOCK", wait_ms) if wait_ms > 0 else ()
        command = ("XREADGROUP", "GROUP", group, consumer, "COUNT", count, *block, "STREAMS", key, ">")
        try:
            async with asyncio.timeout(SECONDS + wait_ms / 1000):
                reply = await self._client().execute_command(*command)
        except (RedisError, OSError, TimeoutError) as error:
            raise self._failed(error) from None
        self._worked()
        if not reply:
            return []
        entries: list[Any] = (reply[key.encode()][0] if isinstance(reply, dict) else reply[0][1]) or []
        return entries

    async def info(self) -> list[dict[str, Any]]:
        """Return what each primary server tells about itself.

        Raises:
            TaskStoreDown: one of them did not answer in time.
        """
        redis = self._client()
        try:
            async with asyncio.timeout(SECONDS):
                if isinstance(redis, RedisCluster):
                    by_node = await redis.info(target_nodes=RedisCluster.PRIMARIES)
                    return [by_node] if "redis_version" in by_node else list(by_node.values())
                return [await redis.info()]
        except (RedisError, OSError, TimeoutError) as error:
            raise self._failed(error) from None

    @asynccontextmanager
    async def pubsub(self) -> AsyncIterator[PubSub]:
        """Open one connection to subscribe with; in a cluster every node hears what is published on any.

        Raises:
            RedisError, OSError, TimeoutError: nothing can be reached.
        """
        redis = self._client()
        node: Redis | None = None
        if isinstance(redis, RedisCluster):
            await redis.initialize()
            chosen = redis.get_random_node()
            node = redis = Redis(host=chosen.host, port=int(chosen.port), **_plain(chosen.connection_kwargs))
        pubsub = redis.pubsub()
        try:
            yield pubsub
        finally:
            await pubsub.aclose()  # type: ignore[no-untyped-call]
            if node is not None:
                await node.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        if self._redis is not None:
            await asyncio.gather(*self._batches, return_exceptions=True)
            await self._redis.aclose()
            if not isinstance(self._redis, RedisCluster):
                await self._redis.connection_pool.disconnect()
            self._redis = None

    def _client(self) -> Redis | RedisCluster:
        if self._redis is None:
            self._redis = self._make()
        return self._redis

    async def _batched(self, redis: Redis, command: Command) -> Any:
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(command, reply))
        if self._sending < _BATCHES:
            self._sending += 1
            batch = asyncio.create_task(self._send_batches(redis))
            self._batches.add(batch)
            batch.add_done_callback(self._batches.discard)
        return await reply

    async def _send_batches(self, redis: Redis) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:_BATCH_COMMANDS], self._waiting[_BATCH_COMMANDS:]
                # Who stopped waiting was told that nothing is known; nothing is sent any more.
                batch = [waiting for waiting in batch if not waiting.reply.done()]
                if batch:
                    await _send_batch(redis, batch)
        finally:
            # At once, not when the task is found to be done: a command that comes in between would wait for nobody.
            self._sending -= 1

    def _failed(self, error: BaseException) -> Exception:
        if isinstance(error, ResponseError):
            if str(error).startswith("NOGROUP"):
                return GroupMissing()
            if str(error).startswith("BUSYGROUP"):
                return GroupExists()
        if not self._down:
            self._down = True
            log.warning("The task store is not available: %s: %s", type(error).__name__, error)
        return TaskStoreDown()

    def _worked(self) -> None:
        if self._down:
            self._down = False
            log.warning("The task store is available again")


async def _repeatable(send: Callable[[], Any]) -> Any:
    """Send, once more if the connection turns out to be lost. Every script of ours can be repeated."""
    try:
        return await send()
    except ConnectionLost:
        return await send()


async def _send_batch(redis: Redis, batch: list[_Waiting]) -> None:
    try:
        async with asyncio.timeout(SECONDS):
            replies = await _repeatable(lambda: _send(redis, batch))
    except (RedisError, OSError, TimeoutError) as error:
        replies = [error] * len(batch)
    for waiting, reply in zip(batch, replies, strict=True):
        if waiting.reply.done():
            continue
        if isinstance(reply, BaseException):
            waiting.reply.set_exception(reply)
        else:
            waiting.reply.set_result(reply)


async def _send(redis: Redis, batch: list[_Waiting]) -> list[Any]:
    if len(batch) == 1:
        try:
            return [await redis.execute_command(*batch[0].command)]  # type: ignore[no-untyped-call]
        except ResponseError as error:
            return [error]
    async with redis.pipeline(transaction=False) as pipeline:
        for waiting in batch:
            pipeline.execute_command(*waiting.command)
        replies: list[Any] = await pipeline.execute(raise_on_error=False)
    return replies


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    kept = ("username", "password", "socket_timeout", "socket_connect_timeout", "protocol")
    return {name: value for name, value in options.items() if name in kept or name.startswith("ssl")}
