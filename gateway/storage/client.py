"""The connection to Redis: one server or a cluster, over TCP, TLS or a Unix socket, with a time limit.

Under load, commands that wait while another batch is in flight are sent together: one write and one read for many
tasks. A failure is raised as `TaskStoreDown`, and as `TaskStoreAway` if the command certainly had no effect. The log
records the reason once per outage and process. A value that the server will never accept is a `ValueTooLarge`.

A script that changes something carries a deadline on the server's clock, after which its caller no longer waits. A
server that was paused may find the command in its socket much later. It then does nothing.
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
from redis.asyncio.connection import ConnectionPool, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.exceptions import NoScriptError, RedisClusterException, RedisError, ResponseError

from gateway.errors import ConfigurationError, TaskStoreAway, TaskStoreDown, ValueTooLarge
from gateway.observability.clock_watch import ClockSource, Reading
from gateway.observability.process_metrics import ProcessTelemetry
from gateway.runtime.replaceable import Replaceable
from gateway.settings.model import REDIS_SCHEMES
from gateway.storage.clocks import ServerClocks
from gateway.storage.lua.shared_scripts import NOW
from gateway.storage.lua.task_scripts import Script
from gateway.storage.outage_log import outages
from gateway.storage.redis_connections import Pool
from gateway.storage.retries import (
    FAILURES,
    cause_of,
    did_nothing,
    is_late,
    is_refusal_of_size,
    kind_of,
    refused_access,
    repeatable,
    sent,
)

log = logging.getLogger("gateway.storage")

SECONDS = 2.0
"""The time limit for everything that does not block on purpose."""

LONGEST_USE_SECONDS = 15.0
"""The longest use of a connection that ends by itself: reading a queue or hints, and a few commands."""

_SOONER_SECONDS = 0.1
"""A script expires this long before its caller stops waiting, as an event loop may notice its own timeout late."""

_CONNECT_SECONDS = 1.0
_CONNECTIONS = 64
_BATCHES = 2
_BATCH_COMMANDS = 200
_ALWAYS_TAKEN_BYTES = 2**20
"""Every server accepts a value of this size, however it is configured (`proto-max-bulk-len`)."""

_REFUSAL_SECONDS = 0.5
"""How long to wait for a server to refuse a value that was announced to it."""

_CLUSTER = "redis+cluster://"
_TLS_CLUSTER = "rediss+cluster://"

Command: TypeAlias = tuple[Any, ...]


class _WaitingCommand(msgspec.Struct, frozen=True):
    command: Command
    reply: asyncio.Future[Any]


class _Late(Exception):
    """A script arrived after its deadline and did nothing."""


class GroupMissing(Exception):
    """A stream has no such consumer group."""


class GroupExists(Exception):
    """A stream already has the consumer group."""


def connect(url: str | Replaceable[str], telemetry: ProcessTelemetry) -> RedisClient:
    """Make a client for the value of `GATEWAY_REDIS_URL`, which may change later, without connecting yet.

    `redis://`, `rediss://` (TLS) and `unix://` are one server; `redis+cluster://` and `rediss+cluster://` name one node
    of a cluster. Options of redis-py may follow as a query, such as `?ssl_ca_certs=/etc/ca.pem`.

    Raises:
        ConfigurationError: not one of these forms. The message never shows the password.
    """
    return RedisClient(Replaceable(url) if isinstance(url, str) else url, telemetry)


def check_url(url: str) -> None:
    """Raise `ConfigurationError`, without the password, if the value of `GATEWAY_REDIS_URL` cannot be parsed."""
    _maker(url)


def _maker(url: str) -> Callable[[], Redis | RedisCluster]:
    """Return a factory for redis-py's client."""
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
            # Enough retries to find the new server of a slot; the time limit of a command ends them.
            options["retry"] = Retry(ExponentialBackoff(cap=0.25, base=0.02), 6)
            make = partial(RedisCluster.from_url, plain, max_connections=_CONNECTIONS, **options)
            make()  # checks the options without connecting
            return make
        pool = Pool.from_url(url, max_connections=_CONNECTIONS, timeout=SECONDS, **options)
        pool.connection_class(**pool.connection_kwargs)  # likewise
    except (ValueError, TypeError, RedisError, RedisClusterException):
        raise ConfigurationError("GATEWAY_REDIS_URL: not a Redis URL; use one like redis://host:6379/0") from None
    return lambda: Redis.from_pool(pool)


class RedisClient:
    """Runs commands and scripts, on one event loop.

    It connects when it is first used. After the URL has changed, the next command uses the new one, and the old
    connections are closed later. Users also count in `telemetry` what they seal and open.
    """

    def __init__(self, url: Replaceable[str], telemetry: ProcessTelemetry) -> None:
        self.telemetry = telemetry
        self._current_url = url
        self._url = url.value
        self._make = _maker(self._url)
        self._outage = outages[self._url]
        self._closing: set[asyncio.Task[None]] = set()
        self._redis: Redis | RedisCluster | None = None
        self._waiting: list[_WaitingCommand] = []
        self._batches: set[asyncio.Task[None]] = set()
        self._sending = 0
        self._clocks = ServerClocks()
        self._asking: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._starting = False

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Report a refused login as a configuration error while a process starts.

        Later it counts as an outage: the operators may change the server's password first and the URL afterwards.
        """
        self._starting = True
        try:
            yield
        finally:
            self._starting = False

    @property
    def problem(self) -> str:
        """The last failure in words, "" if there was none."""
        return self._outage.reason

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run a script, with a deadline if it changes something.

        Raises:
            TaskStoreDown: it did not answer in time, or with an error.
            TaskStoreAway: the same, but the script had no effect and never will.
            ValueTooLarge: an argument is larger than the server accepts.
        """
        if not script.timely:
            return await self._evaluate(script, keys, args)
        began = time.monotonic()
        try:
            return await self._evaluate(script, keys, (*args, await self._deadline_ms(keys[0])))
        except _Late:
            self._clocks.forget()
        # By our own clock there is time left: the server's clock was set, or another server has taken over.
        with suppress(_Late):
            if time.monotonic() - began < SECONDS:
                return await self._evaluate(script, keys, (*args, await self._deadline_ms(keys[0])))
        raise self._down(nothing_done=True)

    async def _deadline_ms(self, key: str) -> int:
        """Return the deadline for a script sent now, on the clock of the server that holds a key."""
        server = key.partition("}")[0] if isinstance(self._client(), RedisCluster) else ""
        now_ms = self._clocks.time_ms(server)
        if now_ms is None:
            try:
                now_ms = await self._ask_time(server, key)
            except TaskStoreDown:
                raise TaskStoreAway from None  # the script was not sent
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
        """Ask for the time before it is needed, so no command has to wait for it."""
        try:
            with suppress(TaskStoreDown):
                await self._ask_time(server, key)
        finally:
            self._asking = None

    def compare_clocks(self, server_ms: float, began: float) -> None:
        """Compare our clock with the time that a server returned for a request sent at `began`, a monotonic time."""
        reading = Reading(server_ms / 1000, 0.001, time.time(), time.monotonic() - began)
        self.telemetry.clocks.compare(ClockSource.REDIS, reading)

    async def _evaluate(self, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run a script by its digest, and send its text to a server that does not know it."""
        try:
            return await self.command("EVALSHA", script.sha, len(keys), *keys, *args)
        except NoScriptError:
            return await self.command("EVAL", script.text, len(keys), *keys, *args)

    async def command(self, *command: Any) -> Any:
        """Run a command that does not block on purpose.

        Raises:
            TaskStoreDown: it did not answer in time, or with an error.
            ValueTooLarge: an argument is larger than the server accepts.
            GroupMissing, GroupExists: for commands about consumer groups.
            NoScriptError: for `EVALSHA`.
        """
        redis = self._client()
        size = _largest(command)
        try:
            async with asyncio.timeout(SECONDS):
                # A refusal closes the connection, so a value that may be refused does not share one with others.
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
        """Read new entries of a stream for a consumer; if there are none, wait for one.

        Raises:
            GroupMissing: the stream has no such group.
            TaskStoreDown: it did not answer in time, or with another error.
        """
        redis = self._client()
        block = ("BLOCK", wait_ms) if wait_ms > 0 else ()
        command = ("XREADGROUP", "GROUP", group, consumer, "COUNT", count, *block, "STREAMS", key, ">")
        try:
            async with asyncio.timeout(SECONDS + wait_ms / 1000):
                reply = await sent(lambda: redis.execute_command(*command))
        except FAILURES as error:
            raise self._failed(error) from None
        self._outage.worked()
        if not reply:
            return []
        entries: list[Any] = (reply[key.encode()][0] if isinstance(reply, dict) else reply[0][1]) or []
        return entries

    async def info(self) -> list[dict[str, Any]]:
        """Return what each primary server reports about itself, or raise `TaskStoreDown` if one does not answer."""
        redis, began = self._client(), time.monotonic()
        try:
            async with asyncio.timeout(SECONDS):
                if isinstance(redis, RedisCluster):
                    by_node = await sent(partial(redis.info, target_nodes=RedisCluster.PRIMARIES))
                    infos = [by_node] if "redis_version" in by_node else list(by_node.values())
                else:
                    infos = [await sent(redis.info)]
        except FAILURES as error:
            raise self._failed(error) from None
        for info in infos:
            if "server_time_usec" in info:
                self.compare_clocks(info["server_time_usec"] / 1000, began)
        return infos

    def watch(self) -> None:
        """Report in the background whether a server may lose tasks. Tasks continue: refusing them saves none."""
        self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        with suppress(TaskStoreDown):
            self.telemetry.redis_watch.see(await self.info())

    @asynccontextmanager
    async def pubsub(self) -> AsyncIterator[PubSub]:
        """Open one connection for subscriptions; any node of a cluster receives every published message.

        If no server can be reached, this raises `RedisError`, `OSError` or `TimeoutError`.
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
            for background in filter(None, (self._asking, self._watching)):
                background.cancel()
            await asyncio.gather(*self._batches, return_exceptions=True)
            await _close(self._redis)
            self._redis = None
        for closing in self._closing:
            closing.cancel()  # which closes at once
        await asyncio.gather(*self._closing, return_exceptions=True)

    @property
    def url(self) -> str:
        """The URL that the next command uses."""
        return self._current_url.value

    @asynccontextmanager
    async def _one_server(self) -> AsyncIterator[Redis]:
        """Provide a client of one server: the only one, or any node of the cluster."""
        redis = self._client()
        if isinstance(redis, Redis):
            yield redis
            return
        await redis.initialize()
        chosen = redis.get_random_node()
        kind, options = chosen.connection_class, _for_one_server(chosen.connection_kwargs)
        node = Redis.from_pool(ConnectionPool(kind, host=chosen.host, port=int(chosen.port), **options))
        try:
            yield node
        finally:
            await node.aclose()

    async def _refuses(self, size: int) -> bool:
        """Return whether the server refuses a value of this size, which is announced but not sent.

        A server that receives such a value closes the connection, and its reason is often lost.
        """
        with suppress(*FAILURES):
            async with asyncio.timeout(SECONDS), self._one_server() as redis:
                connection = await redis.connection_pool.get_connection()  # type: ignore[no-untyped-call]
                try:
                    await connection.disconnect()  # the server may have closed it
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
        if self._url is not self._current_url.value:
            self._change_url()
        if self._redis is None:
            self._redis = self._make()
        return self._redis

    def _change_url(self) -> None:
        self._url = self._current_url.value
        self._make = _maker(self._url)
        self._outage = outages.setdefault(self._url, self._outage)
        self._clocks.forget()
        if self._redis is not None:
            closing = asyncio.create_task(_close_later(self._redis))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            self._redis = None

    async def _batched(self, redis: Redis, command: Command) -> Any:
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(_WaitingCommand(command, reply))
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
                # A caller that gave up got `TaskStoreDown`, so its command is not sent any more.
                batch = [waiting for waiting in batch if not waiting.reply.done()]
                if batch:
                    await _send_batch(redis, batch)
                current = self._client()  # after another batch, there may be another URL
                redis = current if isinstance(current, Redis) else redis
        finally:
            # Here, not in a done callback: until that runs, a new command would wait for a sender that has ended.
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
        """Return the error for a failure. In a cluster redis-py retries on its own and shows only the last error."""
        return TaskStoreAway() if nothing_done and not isinstance(self._redis, RedisCluster) else TaskStoreDown()


async def _close(redis: Redis | RedisCluster) -> None:
    await redis.aclose()
    if not isinstance(redis, RedisCluster):
        await redis.connection_pool.disconnect()


async def _close_later(redis: Redis | RedisCluster) -> None:
    """Close the connections when no command can use them any more, or at once if cancelled."""
    try:
        await asyncio.sleep(LONGEST_USE_SECONDS)
    finally:
        with suppress(*FAILURES):
            await _close(redis)


async def _send_batch(redis: Redis, batch: list[_WaitingCommand]) -> None:
    try:
        async with asyncio.timeout(SECONDS):
            replies = await repeatable(lambda: _send(redis, batch))
    except FAILURES as error:
        replies = [error] * len(batch)
    except Exception as error:  # noqa: BLE001 - one command cannot be encoded; the others must not fail with it
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


async def _send(redis: Redis, batch: list[_WaitingCommand]) -> list[Any]:
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
    """Return the size of a command's largest part. Parts that may be large are bytes or ASCII text."""
    return max(len(part) for part in command if isinstance(part, (str, bytes)))


def _for_one_server(options: dict[str, Any]) -> dict[str, Any]:
    """Leave out what a connection does only for a cluster. Whether it uses TLS says its class, not an option."""
    kept = ("username", "password", "socket_timeout", "socket_connect_timeout", "protocol")
    return {name: value for name, value in options.items() if name in kept or name.startswith("ssl")}
