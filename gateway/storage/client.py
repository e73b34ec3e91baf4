"""The connection to Redis: one server or a cluster, over TCP, TLS or a Unix socket, within a time limit.

Under load, the commands that wait while another batch is on its way travel together: one write and one read for many
tasks. Everything that goes wrong is `TaskStoreDown`, and the log says what, once for each outage of a process; but what
the server will never take is `ValueTooLarge`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple, TypeAlias

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.client import PubSub
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeout

from gateway.errors import ConfigurationError, TaskStoreDown, ValueTooLarge
from gateway.process_telemetry import ProcessTelemetry, RedisErrorKind
from gateway.settings import REDIS_SCHEMES
from gateway.storage.scripts import Script

log = logging.getLogger("gateway.storage")

SECONDS = 2.0
"""How long anything may take that does not wait on purpose."""

_CONNECT_SECONDS = 1.0
_CONNECTIONS = 64
_BATCHES = 2
_BATCH_COMMANDS = 200
_ALWAYS_TAKEN_BYTES = 2**20
"""No server can be told to refuse a value of this size (`proto-max-bulk-len`)."""

_REFUSAL_SECONDS = 0.5
"""How long a server may take to refuse a value that is announced to it."""

_CLUSTER = "redis+cluster://"
_TLS_CLUSTER = "rediss+cluster://"

Command: TypeAlias = tuple[Any, ...]


class _Waiting(NamedTuple):
    command: Command
    reply: asyncio.Future[Any]


class _Outage:
    """What this process has told of an outage of one server, whichever of its clients have noticed."""

    def __init__(self) -> None:
        self._told = False
        self._noticed_by: set[RedisClient] = set()
        self._lock = threading.Lock()

    def begins(self, client: RedisClient, error: BaseException) -> None:
        """Tell that the server is away, unless it was told."""
        with self._lock:
            self._noticed_by.add(client)
            if not self._told:
                self._told = True
                log.warning("task store is not available", extra={"reason": f"{type(error).__name__}: {error}"})

    def ends(self, client: RedisClient) -> None:
        """Tell that the server is back, once somebody finds so who had noticed that it was away."""
        with self._lock:
            if self._told and (client in self._noticed_by or not self._noticed_by):
                self._told = False
                self._noticed_by.clear()
                log.warning("task store is available again")

    def forget(self, client: RedisClient) -> None:
        """Expect no news from a client that is closed."""
        with self._lock:
            self._noticed_by.discard(client)


_outages: defaultdict[str, _Outage] = defaultdict(_Outage)
"""By the URL of the server: what its clients in this process share."""


class GroupMissing(Exception):
    """A stream has no such consumer group."""


class GroupExists(Exception):
    """A stream has the consumer group already."""


def connect(url: str, telemetry: ProcessTelemetry) -> RedisClient:
    """Make a client for the value of `GATEWAY_REDIS_URL`. Connects to nothing yet.

    `redis://`, `rediss://` (TLS) and `unix://` are one server; `redis+cluster://` and `rediss+cluster://` name one
    node of a cluster. Options of redis-py may follow as a query, such as `?ssl_ca_certs=/etc/ca.pem`.

    Args:
        url: the value.
        telemetry: counts what fails.

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
            return RedisClient(
                lambda: RedisCluster.from_url(plain, max_connections=_CONNECTIONS, **options), _outages[url], telemetry
            )
        pool = BlockingConnectionPool.from_url(url, max_connections=_CONNECTIONS, timeout=SECONDS, **options)
    except (ValueError, TypeError, RedisError):
        raise ConfigurationError("GATEWAY_REDIS_URL cannot be read; it must be like redis://host:6379/0") from None
    return RedisClient(lambda: Redis.from_pool(pool), _outages[url], telemetry)


class RedisClient:
    """Runs commands and scripts. Used by one event loop.

    Args:
        make: makes redis-py's client, when it is first needed.
        outage: tells of outages.
        telemetry: counts what fails, and what is sealed and opened by those who use the client.
    """

    def __init__(self, make: Callable[[], Redis | RedisCluster], outage: _Outage, telemetry: ProcessTelemetry) -> None:
        self.telemetry = telemetry
        self._make = make
        self._outage = outage
        self._redis: Redis | RedisCluster | None = None
        self._waiting: list[_Waiting] = []
        self._batches: set[asyncio.Task[None]] = set()
        self._sending = 0

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run a script; a server that does not know it gets its text.

        Raises:
            TaskStoreDown: it did not answer in time, or with an error.
            ValueTooLarge: an argument is larger than it takes.
        """
        try:
            return await self.command("EVALSHA", script.sha, len(keys), *keys, *args)
        except NoScriptError:
            return await self.command("EVAL", script.text, len(keys), *keys, *args)

    async def command(self, *command: Any) -> Any:
        """Run a command that does not wait on purpose.

        Raises:
            TaskStoreDown: it did not answer in time, or with an error.
            ValueTooLarge: an argument is larger than it takes.
            GroupMissing, GroupExists: for commands about consumer groups.
            NoScriptError: for `EVALSHA`.
        """
        redis = self._client()
        size = _largest(command)
        try:
            async with asyncio.timeout(SECONDS):
                # What the server may refuse must not take others down with its connection.
                if isinstance(redis, RedisCluster) or size > _ALWAYS_TAKEN_BYTES:
                    reply = await _repeatable(lambda: redis.execute_command(*command))
                else:
                    reply = await self._batched(redis, command)
        except NoScriptError:
            raise
        except (RedisError, OSError, TimeoutError) as error:
            if size > _ALWAYS_TAKEN_BYTES and (_is_refusal(error) or await self._refuses(size)):
                log.warning("task store refuses a value; see its proto-max-bulk-len", extra={"bytes": size})
                raise ValueTooLarge("What the task has to store", size) from None
            raise self._failed(error) from None
        self._outage.ends(self)
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
        self._outage.ends(self)
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
        async with self._one_server() as redis:
            pubsub = redis.pubsub()
            try:
                yield pubsub
            finally:
                await pubsub.aclose()  # type: ignore[no-untyped-call]

    async def aclose(self) -> None:
        """Close all connections."""
        self._outage.forget(self)
        if self._redis is not None:
            await asyncio.gather(*self._batches, return_exceptions=True)
            await self._redis.aclose()
            if not isinstance(self._redis, RedisCluster):
                await self._redis.connection_pool.disconnect()
            self._redis = None

    @asynccontextmanager
    async def _one_server(self) -> AsyncIterator[Redis]:
        """Give a client of one server: the only one, or any of the cluster."""
        redis = self._client()
        if isinstance(redis, Redis):
            yield redis
            return
        await redis.initialize()
        chosen = redis.get_random_node()
        node = Redis(host=chosen.host, port=int(chosen.port), **_plain(chosen.connection_kwargs))
        try:
            yield node
        finally:
            await node.aclose()

    async def _refuses(self, size: int) -> bool:
        """Ask whether the server refuses a value of this size, by announcing one.

        A server that is sent such a value closes the connection; its reason is often lost with it.
        """
        with suppress(RedisError, OSError, TimeoutError):
            async with asyncio.timeout(SECONDS), self._one_server() as redis:
                connection = await redis.connection_pool.get_connection()  # type: ignore[no-untyped-call]
                try:
                    await connection.disconnect()  # it may be one that the server has closed
                    await connection.connect()
                    await connection.send_packed_command([b"*1\r\n$%d\r\n" % size], check_health=False)
                    await connection.read_response(timeout=_REFUSAL_SECONDS)
                except ResponseError as error:
                    return _is_refusal(error)
                finally:
                    await connection.disconnect()
                    await redis.connection_pool.release(connection)
        return False

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
        self._outage.begins(self, error)
        self.telemetry.redis_failed(_kind(error))
        return TaskStoreDown()


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


def _kind(error: BaseException) -> RedisErrorKind:
    if isinstance(error, (RedisTimeout, TimeoutError)):
        return RedisErrorKind.TIMEOUT
    if isinstance(error, (ConnectionLost, OSError)):
        return RedisErrorKind.CONNECTION
    # By its text: Redis 6.2 wraps what a script was told into an error of its own.
    return RedisErrorKind.FULL if "used memory > 'maxmemory'" in str(error) else RedisErrorKind.OTHER


def _is_refusal(error: BaseException) -> bool:
    """Tell whether a server says that what it is sent is none of its protocol: the size of a value, in our case."""
    return isinstance(error, ResponseError) and str(error).startswith("Protocol error")


def _largest(command: Command) -> int:
    """Return the size of a command's largest part that may be large; texts of ours are ASCII where they are."""
    return max(len(part) for part in command if isinstance(part, (str, bytes)))


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    kept = ("username", "password", "socket_timeout", "socket_connect_timeout", "protocol")
    return {name: value for name, value in options.items() if name in kept or name.startswith("ssl")}
