"""Deployments and tasks for tests of the store."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import redis

from gateway.observability.process_metrics import ProcessTelemetry
from gateway.sealing.binding import owner
from gateway.sealing.keyring import KeyRing, generate_entry
from gateway.sealing.principal import Principal
from gateway.storage import RedisTaskStore, RedisWorkQueue, connect
from gateway.storage.redis_keys import RedisKeys
from gateway.tasks.model import Retention, TaskView
from gateway.tasks.ports import Claim, NewTask
from gateway.tasks.stored_journal import is_journal
from gateway.tokens.key_holder import KeyHolder

ALICE = Principal("https://issuer", "alice", "client")
BOB = Principal("https://issuer", "bob", "client")
PARTITIONS = 2
MAX_TTL_MS = 600_000
RING = KeyRing.parse(generate_entry(os.urandom))
SECRET = os.urandom(32)
"""Names the owners in all tests, so a test knows the names without asking a store."""

numbers = itertools.count(1)


def new_task(audience: str, principal: Principal | None = ALICE, **changes: Any) -> NewTask:
    """A task of Alice with an id that was never used."""
    given: dict[str, Any] = {
        "owner": owner(principal, audience, SECRET),
        "task_id": f"t_{next(numbers)}",
        "tool": "some_tool",
        "tool_version": 3,
        "form": "released",
        "retention": Retention("created", 60_000),
        "capabilities": {"elicitation": {}},
        "arguments": {"city": "Oslo"},
        "principal": principal,
        "journal": {"flow": "f" * 32, "seed": b"s" * 16, "start": 1, "deadline": 2, "legs": 1, "rounds": 0},
    }
    return NewTask(**{**given, **changes})


class Deployment:
    """One deployment on a server: stores and workers that share an audience and a key ring."""

    def __init__(self, url: str, ring: KeyRing = RING) -> None:
        self.url = url
        self.audience = f"audience-{next(numbers)}"
        self.keys = RedisKeys(self.audience, PARTITIONS)
        self.ring = ring
        self.telemetry = ProcessTelemetry()
        self._opened = AsyncExitStack()

    def holder(self, ring: KeyRing | None = None) -> KeyHolder:
        """The keys of another process."""
        return KeyHolder(ring or self.ring, self.audience, clock=time.time, random_bytes=os.urandom)

    def store(self, ring: KeyRing | None = None, **options: Any) -> RedisTaskStore:
        """The store of another replica."""
        given = {"partitions": PARTITIONS, "max_ttl_ms": MAX_TTL_MS, "random_bytes": lambda _: SECRET, **options}
        store = RedisTaskStore(connect(self.url, self.telemetry), self.holder(ring), **given)
        self._opened.push_async_callback(store.aclose)
        return store

    def queue(self, worker_id: str = "w1", ring: KeyRing | None = None, **options: Any) -> RedisWorkQueue:
        """The queue of another worker."""
        given = {
            "partitions": PARTITIONS,
            "max_ttl_ms": MAX_TTL_MS,
            "lease_ms": 60_000,
            "random_bytes": lambda _: SECRET,
            **options,
        }
        queue = RedisWorkQueue(connect(self.url, self.telemetry), self.holder(ring), worker_id, **given)
        self._opened.push_async_callback(queue.aclose)
        return queue

    def new(self, principal: Principal | None = ALICE, **changes: Any) -> NewTask:
        return new_task(self.audience, principal, **changes)

    def owner(self, principal: Principal | None = ALICE) -> str:
        return owner(principal, self.audience, SECRET)

    async def claim(self, queue: RedisWorkQueue, principal: Principal | None = ALICE, count: int = 1) -> list[Claim]:
        """Claim what there is now of a principal's partition, without waiting."""
        return await queue.claim(self.keys.partition_of(self.owner(principal)), count, 0)

    async def claim_one(self, queue: RedisWorkQueue) -> Claim:
        (claim,) = await self.claim(queue)
        return claim

    async def stored(self, **changes: Any) -> tuple[RedisTaskStore, NewTask]:
        """Create a task of Alice."""
        store, new = self.store(), self.new(**changes)
        await store.create(new, 10)
        return store, new

    async def created(self, **changes: Any) -> tuple[RedisTaskStore, RedisWorkQueue, NewTask]:
        """Create a task of Alice, for a queue."""
        store, new = await self.stored(**changes)
        return store, self.queue(), new

    async def begun(self, **changes: Any) -> tuple[RedisTaskStore, RedisWorkQueue, NewTask, Claim]:
        """Create a task of Alice and claim it."""
        store, queue, new = await self.created(**changes)
        return store, queue, new, await self.claim_one(queue)

    def kept_bytes(self, principal: Principal | None = ALICE) -> tuple[int, int]:
        """Return the bytes that the store counts for a principal's tasks, and the real size of their sealed values."""
        name = self.owner(principal)
        with redis.Redis.from_url(self.url) as client:
            counted = int(client.hget(self.keys.sizes(name), "total") or 0)
            real = 0
            for task in client.scan_iter(match=f"{self.keys.prefix}:*:task:{name}:*", count=1000):
                fields = client.hgetall(task)
                real += sum(len(value) for field, value in fields.items() if is_counted(field.decode()))
            for stream in client.scan_iter(match=f"{self.keys.prefix}:*:segments:{name}:*", count=1000):
                real += sum(len(fields[b"block"]) for _, fields in client.xrange(stream))
        return counted, real

    async def aclose(self) -> None:
        await self._opened.aclose()


def is_counted(field: str) -> bool:
    """Return whether a field of a task's record counts towards the bytes of its owner's tasks."""
    named = {"about", "call", "capabilities", "questions", "result", "error", "message", "failed", "why"}
    return field in named or is_journal(field) or field.startswith("n:")


async def everything(here: Deployment) -> dict[bytes, bytes | None]:
    """Return all keys of a deployment as they are, dumped."""
    async with here.store()._client._one_server() as server:
        return {name: await server.dump(name) async for name in server.scan_iter(match=f"{here.keys.prefix}*")}


async def rotate(here: Deployment) -> KeyRing:
    """Rotate the keys of a deployment, so the old one is gone while its tasks remain; return the new ring."""
    new = KeyRing.parse(generate_entry(os.urandom))
    await here.store(ring=KeyRing((*new.keys, *here.ring.keys))).check()
    return new


async def server_now_ms(store: RedisTaskStore) -> int:
    """Return the time by the server's clock."""
    seconds, microseconds = await store._client.command("TIME")
    return int(seconds) * 1000 + int(microseconds) // 1000


async def seen(store: RedisTaskStore, task: NewTask | Claim) -> TaskView:
    """Return a task, which must exist."""
    view = await store.get(task.owner, task.task_id)
    assert view is not None
    return view


async def gone(store: RedisTaskStore, task: NewTask) -> None:
    """Wait until a task has expired."""

    async def expired() -> bool:
        return await store.get(task.owner, task.task_id) is None

    await eventually(expired)


async def eventually(probe: Callable[[], Awaitable[Any]]) -> Any:
    """Repeat a probe until it returns a true value; the test's own time limit ends a hopeless wait."""
    while True:
        found = await probe()
        if found:
            return found
        await asyncio.sleep(0.01)


def keys_without_lifetime(url: str, prefix: str = "") -> list[str]:
    """Name the keys of a server that would stay forever, except the queues."""
    with redis.Redis.from_url(url) as client:
        names = [name.decode() for name in client.scan_iter(match=f"{prefix}*", count=1000)]
        return [name for name in names if not name.endswith(":queue") and client.pttl(name) == -1]
