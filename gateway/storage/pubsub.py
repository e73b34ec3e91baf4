"""Hints about changes, over one subscriber connection for the whole process.

A hint may be lost, late or duplicated. A listener reads the state after it subscribes, after each lost connection, and
every few seconds. Hints only make it react faster.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from typing import Final

from redis.asyncio.client import PubSub
from redis.exceptions import ConnectionError as ConnectionLost

from gateway.storage.client import RedisClient

RECHECK_SECONDS = 5.0
_SUBSCRIBE_SECONDS = 1.0
_RETRY_SECONDS = 0.5

_ANY: Final = ("",)
"""The topic of listeners that want every hint; no task has an empty id."""


class Listener:
    """Collects the hints that one listener has not read yet, about some tasks (`topics`) or all.

    If hints may have been lost (`missed`), everything has to be read.
    """

    def __init__(self, topics: frozenset[str] | None) -> None:
        self.topics = topics
        self.missed = True
        self._texts: dict[str, None] = {}
        self._news = asyncio.Event()

    def hear(self, text: str) -> None:
        """Add a hint."""
        self._texts[text] = None
        self._news.set()

    def miss(self) -> None:
        """Note that hints may have been lost."""
        self.missed = True
        self._news.set()

    async def wait(self, seconds: float) -> list[str]:
        """Wait for a hint, and return all hints since the last call. After the given seconds, set `missed`."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            self.missed = True
        self._news.clear()
        texts = list(self._texts)
        self._texts.clear()
        return texts


class _Channel:
    """The listeners of one channel, by topic: a thousand streams of one owner may follow a thousand tasks."""

    def __init__(self) -> None:
        self.live = asyncio.Event()
        self._all: set[Listener] = set()
        self._by_topic: dict[str, set[Listener]] = {}

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, listener: Listener) -> None:
        self._all.add(listener)
        for topic in _ANY if listener.topics is None else listener.topics:
            self._by_topic.setdefault(topic, set()).add(listener)

    def remove(self, listener: Listener) -> None:
        self._all.discard(listener)
        for topic in _ANY if listener.topics is None else listener.topics:
            listeners = self._by_topic[topic]
            listeners.discard(listener)
            if not listeners:
                del self._by_topic[topic]

    def hear(self, text: str) -> None:
        for topic in {*_ANY, topic_of(text)}:
            for listener in self._by_topic.get(topic, ()):
                listener.hear(text)

    def miss(self) -> None:
        for listener in self._all:
            listener.miss()
        self.live.set()


class Subscriber:
    """The one subscriber of a process."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._channels: dict[str, _Channel] = {}
        self._anyone = asyncio.Event()
        self._pubsub: PubSub | None = None
        self._reader: asyncio.Task[None] | None = None
        self._asking: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listen(self, name: str, topics: Collection[str] | None = None) -> AsyncIterator[Listener]:
        """Subscribe to a channel, for the hints of some tasks or all.

        The subscription is active on entry, unless the store does not answer.
        """
        listener = Listener(None if topics is None else frozenset(topics))
        channel = self._channels.setdefault(name, _Channel())
        channel.add(listener)
        self._anyone.set()
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read_for_ever())
        elif not channel.live.is_set():
            await self._ask("subscribe", name)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_SUBSCRIBE_SECONDS):
                    await channel.live.wait()
            yield listener
        finally:
            channel.remove(listener)
            if not channel:
                del self._channels[name]
                if not self._channels:
                    self._anyone.clear()
                await self._ask("unsubscribe", name)

    async def aclose(self) -> None:
        """Close the connection. Remaining listeners get no more hints."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def _ask(self, what: str, channel: str) -> None:
        """Subscribe or unsubscribe, even if the listener is cancelled: all listeners share the connection.

        A cancellation would make redis-py close the connection; or, if it arrives just after the command was sent,
        redis-py would swallow it.
        """
        asking = asyncio.create_task(self._send(what, channel))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        await asyncio.shield(asking)

    async def _send(self, what: str, channel: str) -> None:
        pubsub = self._pubsub
        if pubsub is None:
            return  # the reader subscribes to all channels when it has connected
        with suppress(Exception):  # redis-py can raise anything while the reader reconnects
            await getattr(pubsub, what)(channel)
            return
        if self._pubsub is pubsub:
            self._pubsub = None  # makes the reader reconnect and subscribe to all channels

    async def _read_for_ever(self) -> None:
        while True:
            try:
                # redis-py can raise anything when a command is sent while it reconnects.
                with suppress(Exception):
                    async with self._client.pubsub() as pubsub:
                        await self._read(pubsub)
            finally:
                self._pubsub = None
                for channel in self._channels.values():
                    channel.live.clear()
            await asyncio.sleep(_RETRY_SECONDS)

    async def _read(self, pubsub: PubSub) -> None:
        url = self._client.url
        await self._anyone.wait()
        channels: set[str] = set()
        while missing := self._channels.keys() - channels:
            await pubsub.subscribe(*missing)
            channels |= missing
        self._pubsub = pubsub
        pinged = False
        while self._pubsub is pubsub and self._client.url is url:
            message = await pubsub.get_message(timeout=RECHECK_SECONDS)
            if message is not None:
                pinged = False
                self._take(message["type"], message["channel"], message["data"])
            elif pinged:
                raise ConnectionLost
            elif pubsub.subscribed:
                await pubsub.ping()
                pinged = True

    def _take(self, kind: str, name: bytes | None, data: object) -> None:
        channel = self._channels.get((name or b"").decode())
        if channel is None:
            return
        if kind == "message" and isinstance(data, bytes):
            channel.hear(data.decode(errors="replace"))
        elif kind == "subscribe":
            channel.miss()


def topic_of(text: str) -> str:
    """Return the task that a hint is about: the part after the generation."""
    return text.partition(" ")[2]
