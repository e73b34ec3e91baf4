"""Requests that are under way while a test does something else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import redis

from loadtest.cluster import Replica, Worker
from tests.storage.servers import Server
from tests.wires.draft.client import DraftClient
from tests.wires.draft.deployment import Deployment
from tests.wires.draft.messages import is_response
from tests.wires.draft.transport import Exchange, Message


class UnderWay:
    """A request, and what its answer has brought so far."""

    def __init__(self, client: DraftClient, method: str, params: Mapping[str, Any]) -> None:
        self._client, self._method, self._params = client, method, params
        self._news = asyncio.Condition()
        self._reading: asyncio.Task[None] | None = None
        self.request_id = 0
        self.url = ""
        self.headers: Mapping[str, str] = {}
        self.messages: list[Message] = []

    async def read(self) -> None:
        """Read the answer to its end."""
        async with self._client.asking(self._method, self._params) as (self.request_id, exchange):
            self.url, self.headers = exchange.url, exchange.headers
            await self._read(exchange)

    async def _read(self, exchange: Exchange) -> None:
        async for message in exchange.messages:
            async with self._news:
                self.messages.append(message)
                self._news.notify_all()

    def start(self) -> None:
        """Read from now on."""
        self._reading = asyncio.create_task(self.read())

    async def stop(self) -> None:
        """Close the connection, if it is open."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def until(self, wanted: Callable[[Message], bool]) -> Message:
        """Wait for a message, and return the first one that is wanted; it may have come before."""

        def found() -> Message | None:
            return next((message for message in self.messages if wanted(message)), None)

        async with asyncio.timeout(self._client.seconds), self._news:
            await self._news.wait_for(lambda: found() is not None)
        message = found()
        assert message is not None
        return message

    async def hear(self, method: str) -> Message:
        """Wait for a notification, or a request of the server's."""
        return await self.until(lambda message: message.get("method") == method)

    async def created(self) -> None:
        """Wait until the task of the first form is there."""
        await self.hear("notifications/tasks/created")

    async def end(self) -> list[Message]:
        """Wait for the end of the answer, and return all that it brought."""
        assert self._reading is not None
        await asyncio.wait_for(self._reading, self._client.seconds)
        return self.messages

    async def response(self) -> Message:
        """Wait for the end of the answer, and return the response, which is the last message."""
        *before, last = await self.end()
        assert is_response(last), last
        assert last["id"] == self.request_id
        assert not any(is_response(message) for message in before)
        return last


@contextlib.asynccontextmanager
async def under_way(client: DraftClient, method: str, params: Mapping[str, Any]) -> AsyncIterator[UnderWay]:
    """Send a request, and read its answer while the context is open; leaving closes the connection."""
    request = UnderWay(client, method, params)
    request.start()
    try:
        yield request
    finally:
        await request.stop()


@contextlib.contextmanager
def idle(worker: Worker) -> Iterator[None]:
    """Suspend a worker, so that tasks stay in the queue."""
    worker.pause()
    try:
        yield
    finally:
        worker.resume()


@contextlib.contextmanager
def unreadable(server: Server, task_id: str) -> Iterator[None]:
    """Let what is sealed in the tasks of an id not open while the context is open, as if its key had gone too early."""
    with damaged(server, task_id, "capabilities", "s1.nothing"):
        yield


@contextlib.contextmanager
def damaged(server: Server, task_id: str, field: str, value: str | None) -> Iterator[None]:
    """Let a field of the tasks of an id have another value, or be missing, while the context is open."""
    with redis.Redis.from_url(server.url) as store:
        names = [name for name in store.scan_iter("*:task:*", count=1000) if name.endswith(f":{task_id}".encode())]
        before = {name: store.hget(name, field) for name in names}
        kept = {name: whole for name, whole in before.items() if whole is not None}
        assert kept
        for name in kept:
            if value is None:
                store.hdel(name, field)
            else:
                store.hset(name, field, value)
        try:
            yield
        finally:
            for name, whole in kept.items():
                store.hset(name, field, whole)


@contextlib.contextmanager
def joined_by(fleet: Deployment, name: str, **settings: str) -> Iterator[Replica]:
    """Let one more replica, with settings of its own, be there while the context is open."""
    replica = fleet.add_replica(name, **settings)
    try:
        yield replica
    finally:
        fleet.remove_replica(name)
