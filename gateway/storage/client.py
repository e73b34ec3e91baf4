"""The connection to Redis: one server or a cluster, over TCP, TLS or a Unix socket, within a time limit.

Under load, the commands that wait while another batch is on its way travel together: one write and one read for many
tasks. Everything that goes wrong is `TaskStoreDown`, and the log says what, once for each outage of a process; but what
the server will never take is `ValueTooLarge`. Where nothing was done for certain, it is `TaskStoreAway`.

A script that changes something carries the moment at which its caller gives up, by the server's clock. The server may
stand still and find the command in its socket long after: it does nothing then.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, TypeAlias

import msgspec
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.exceptions import NoScriptError, RedisClusterException, RedisError, ResponseError

from gateway.errors import ConfigurationError, TaskStoreAway, TaskStoreDown, ValueTooLarge
from gateway.observability.clock_watch import ClockSource, Reading
from gateway.observability.process_metrics import ProcessTelemetry
from gateway.settings.model import REDIS_SCHEMES
from gateway.storage.clocks import ServerClocks
from gateway.storage.failing import (
    FAILURES,
    cause_of,
    did_nothing,
    is_late,
    is_refusal_of_size,
    kind_of,
    refused_access,
    repeatable,
)
from gateway.storage.outages import Outage, outages
from gateway.storage.redis_connections import Pool
from gateway.storage.shared_scripts import NOW
from gateway.storage.task_scripts import Script

log = logging.getLogger("gateway.storage")

SECONDS = 2.0
"""How long anything may take that does not wait on purpose."""

_SOONER_SECONDS = 0.1
"""How much sooner than its caller gives up the deadline of a script is: an event loop may see the time a bit late."""

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


class _Waiting(msgspec.Struct, frozen=True):
    command: Command
    reply: asyncio.Future[Any]


class _Late(Exception):
    """A script came after its deadline and did nothing."""


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
    return RedisClient(_maker(url), outages[url], telemetry)


def check_url(url: str) -> None:
    """Check that the value of `GATEWAY_REDIS_URL` can be read.

    Raises:
        ConfigurationError: it cannot. It never shows the password.
    """
    _maker(url)


def _maker(url: str) -> Callable[[], Redis | RedisCluster]:
    """Return what makes redis-py's client."""
    if not url.startswith(REDIS_SCHEMES):
        raise ConfigurationError(f"GATEWAY_REDIS_URL: it must start with one of {', '.join(REDIS_SCHEMES)}")
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
            make = partial(RedisCluster.from_url, plain, max_connections=_CONNECTIONS, **options)
            make()  # it checks the options, and connects to nothing yet
            return make
        pool = Pool.from_url(url, max_connections=_CONNECTIONS, timeout=SECONDS, **options)
        pool.connection_class(**pool.connection_kwargs)  # the same
    except (ValueError, TypeError, RedisError, RedisClusterException):
        raise ConfigurationError("GATEWAY_REDIS_URL: not a Redis URL; use one like redis://host:6379/0") from None
    return lambda: Redis.from_pool(pool)


class RedisClient:
    """Runs commands and scripts. Used by one event loop.

    Args:
        make: makes redis-py's client, when it is first needed.
        outage: tells of outages.
        telemetry: counts what fails, and what is sealed and opened by those who use the client.
    """

    def __init__(self, make: Callable[[], Redis | RedisCluster], outage: Outage, telemetry: ProcessTelemetry) -> None:
        self.telemetry = telemetry
        self._make = make
        self._outage = outage
        self._redis: Redis | RedisCluster | None = None
        self._waiting: list[_Waiting] = []
        self._batches: set[asyncio.Task[None]] = set()
        self._sending = 0
        self._clocks = ServerClocks()
        self._asking: asyncio.Task[None] | None = None
        self._starting = False

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Take a refused login for what it is while a process starts: a wrong setting.

        Later it is an outage: the server's operators may have changed the password first, and the URL next.
        """
        self._starting = True
        try:
            yield
        finally:
            self._starting = False

    @property
    def problem(self) -> str:
        """What went wrong last, in words; nothing if nothing has."""
        return self._outage.reason

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run a script, one that changes something with the deadline that it takes.

        Raises:
            TaskStoreDown: it did not answer in time, or with an error.
            TaskStoreAway: the same, and it has done nothing, and never will.
            ValueTooLarge: an argument is larger than it takes.
        """
        if not script.timely:
            return await self._evaluate(script, keys, args)
        began = time.monotonic()
        try:
            return await self._evaluate(script, keys, (*args, await self._deadline_ms(keys[0])))
        except _Late:
            self._clocks.forget()
        # In time by our own clock: the server's was set, or another server has taken over.
        with suppress(_Late):
            if time.monotonic() - began < SECONDS:
                return await self._evaluate(script, keys, (*args, await self._deadline_ms(keys[0])))
        raise self._down(nothing_done=True)

    async def _deadline_ms(self, key: str) -> int:
        """Return when a script that is sent now is given up, by the clock of the server that has a key."""
        server = key.partition("}")[0] if isinstance(self._client(), RedisCluster) else ""
        now_ms = self._clocks.time_ms(server)
        if now_ms is None:
            try:
                now_ms = await self._ask_time(server, key)
            except TaskStoreDown:
                raise TaskStoreAway from None  # what is to be done was not sent
        elif not self._clocks.is_fresh(server) and self._asking is None:
            self._asking = asyncio.create_task(self._refresh(server, key))
        return int(now_ms + (SECONDS - _SOONER_SECONDS) * 1000)

    async def _ask_time(self, server: str, key: str) -> int:
        began = time.monotonic()
        server_ms: int = await self._evaluate(NOW, [key], ())
        self._clocks.learn(server, server_ms)
        self.compare_clocks(server_ms, began)
        return server_ms

    async def _refresh(self, server: str, key: str) -> None:
        """Ask for the time before it is needed, so that nobody waits for it."""
        try:
            with suppress(TaskStoreDown):
                await self._ask_time(server, key)
        finally:
            self._asking = None

    def compare_clocks(self, server_ms: float, began: float) -> None:
        """Compare our clock with what a server has just told, in answer to what was sent at a monotonic time."""
        reading = Reading(server_ms / 1000, 0.001, time.time(), time.monotonic() - began)
        self.telemetry.clocks.compare(ClockSource.REDIS, reading)

    async def _evaluate(self, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run a script; a server that does not know it gets its text."""
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
                    reply = await repeatable(lambda: redis.execute_command(*command))
                else:
                    reply = await self._batched(redis, command)
        except NoScriptError:
            raise
        except FAILURES as error:
            if size > _ALWAYS_TAKEN_BYTES and (is_refusal_of_size(error) or await self._refuses(size)):
                log.warning("task store refuses a value; see its proto-max-bulk-len", extra={"bytes": size})
                raise ValueTooLarge("A value that the task stores", size) from None
            raise self._failed(error) from None
        self._outage.worked()
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
        except FAILURES as error:
            raise self._failed(error) from None
        self._outage.worked()
        if not reply:
            return []
        entries: list[Any] = (reply[key.encode()][0] if isinstance(reply, dict) else reply[0][1]) or []
        return entries

    async def info(self) -> list[dict[str, Any]]:
        """Return what each primary server tells about itself.

        Raises:
            TaskStoreDown: one of them did not answer in time.
        """
        redis, began = self._client(), time.monotonic()
        try:
            async with asyncio.timeout(SECONDS):
                if isinstance(redis, RedisCluster):
                    by_node = await redis.info(target_nodes=RedisCluster.PRIMARIES)
                    infos = [by_node] if "redis_version" in by_node else list(by_node.values())
                else:
                    infos = [await redis.info()]
        except FAILURES as error:
            raise self._failed(error) from None
        for info in infos:
            if "server_time_usec" in info:
                self.compare_clocks(info["server_time_usec"] / 1000, began)
        return infos

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
        if self._redis is not None:
            if self._asking is not None:
                self._asking.cancel()
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
        with suppress(*FAILURES):
            async with asyncio.timeout(SECONDS), self._one_server() as redis:
                connection = await redis.connection_pool.get_connection()  # type: ignore[no-untyped-call]
                try:
                    await connection.disconnect()  # it may be one that the server has closed
                    await connection.connect()
                    await connection.send_packed_command([b"*1\r\n$%d\r\n" % size], check_health=False)
                    await connection.read_response(timeout=_REFUSAL_SECONDS)
                except ResponseError as error:
                    return is_refusal_of_size(error)
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
            if is_late(error):
                return _Late()
        cause = cause_of(error)
        refused = refused_access(cause)
        if refused is not None and self._starting:
            return ConfigurationError(f"GATEWAY_REDIS_URL: {refused}")
        self._outage.failed(cause if refused is None else PermissionError(f"GATEWAY_REDIS_URL: {refused}"))
        self.telemetry.redis_failed(kind_of(cause))
        self._clocks.forget()
        return self._down(nothing_done=did_nothing(error))

    def _down(self, *, nothing_done: bool) -> TaskStoreDown:
        """Return the error for a failure. In a cluster redis-py sends again by itself and shows the last error only."""
        return TaskStoreAway() if nothing_done and not isinstance(self._redis, RedisCluster) else TaskStoreDown()


async def _send_batch(redis: Redis, batch: list[_Waiting]) -> None:
    try:
        async with asyncio.timeout(SECONDS):
            replies = await repeatable(lambda: _send(redis, batch))
    except FAILURES as error:
        replies = [error] * len(batch)
    except Exception as error:  # noqa: BLE001 - one of them cannot be sent at all: the others must not wait for it
        if len(batch) > 1:
            for waiting in batch:
                await _send_batch(redis, [waiting])
            return
        replies = [error]
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


def _largest(command: Command) -> int:
    """Return the size of a command's largest part that may be large; texts of ours are ASCII where they are."""
    return max(len(part) for part in command if isinstance(part, (str, bytes)))


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    kept = ("username", "password", "socket_timeout", "socket_connect_timeout", "protocol")
    return {name: value for name, value in options.items() if name in kept or name.startswith("ssl")}
