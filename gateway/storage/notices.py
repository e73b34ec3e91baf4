"""Hints that something changed, over one subscriber connection for the whole process.

A hint may be lost, late or doubled. Whoever listens reads the state after subscribing, after every lost connection,
and every few seconds besides; hints only make that quick.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from redis.asyncio.client import PubSub
from redis.exceptions import ConnectionError as ConnectionLost

from gateway.storage.client import RedisClient

RECHECK_SECONDS = 5.0
_SUBSCRIBE_SECONDS = 1.0
_RETRY_SECONDS = 0.5


class Listener:
    """What one listener has not heard yet.

    Attributes:
        missed: whether hints may have been lost, so that everything has to be read.
    """

    def __init__(self) -> None:
        self.missed = True
        self._texts: dict[str, None] = {}
        self._news = asyncio.Event()

    def hear(self, text: str) -> None:
        """Take in a hint."""
        self._texts[text] = None
        self._news.set()

    def miss(self) -> None:
        """Note that hints may have been lost."""
        self.missed = True
        self._news.set()

    async def wait(self, seconds: float) -> list[str]:
        """Return the hints since the last time, after waiting for one. After so many seconds, `missed` is set."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            self.missed = True
        self._news.clear()
        texts = list(self._texts)
        self._texts.clear()
        return texts


class Notices:
    """The one subscriber of a process.

    Args:
        client: the connection.
    """

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._listeners: dict[str, set[Listener]] = {}
        self._live: dict[str, asyncio.Event] = {}
        self._anyone = asyncio.Event()
        self._pubsub: PubSub | None = None
        self._reader: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def listen(self, channel: str) -> AsyncIterator[Listener]:
        """Subscribe to a channel. The subscription holds on entry, unless the store does not answer."""
        listener = Listener()
        self._listeners.setdefault(channel, set()).add(listener)
        live = self._live.setdefault(channel, asyncio.Event())
        self._anyone.set()
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read_for_ever())
        elif not live.is_set():
            await self._ask("subscribe", channel)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_SUBSCRIBE_SECONDS):
                    await live.wait()
            yield listener
        finally:
            listeners = self._listeners[channel]
            listeners.discard(listener)
            if not listeners:
                del self._listeners[channel], self._live[channel]
                if not self._listeners:
                    self._anyone.clear()
                await self._ask("unsubscribe", channel)

    async def aclose(self) -> None:
        """Close the connection. Who still listens hears nothing more."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def _ask(self, what: str, channel: str) -> None:
        pubsub = self._pubsub
        if pubsub is None:
            return  # the reader subscribes to all of them when it has connected
        try:
            await getattr(pubsub, what)(channel)
        except Exception:  # noqa: BLE001 - redis-py fails in any way while the reader connects again
            if self._pubsub is pubsub:
                self._pubsub = None  # which makes the reader start again, with all of them

    async def _read_for_ever(self) -> None:
        while True:
            try:
                # Whatever redis-py fails with when somebody asks while it connects again.
                with suppress(Exception):
                    async with self._client.pubsub() as pubsub:
                        await self._read(pubsub)
            finally:
                self._pubsub = None
                for live in self._live.values():
                    live.clear()
            await asyncio.sleep(_RETRY_SECONDS)

    async def _read(self, pubsub: PubSub) -> None:
        await self._anyone.wait()
        channels: set[str] = set()
        while missing := self._listeners.keys() - channels:
            await pubsub.subscribe(*missing)
            channels |= missing
        self._pubsub = pubsub
        pinged = False
        while self._pubsub is pubsub:
            message = await pubsub.get_message(timeout=RECHECK_SECONDS)
            if message is not None:
                pinged = False
                self._take(message["type"], message["channel"], message["data"])
            elif pinged:
                raise ConnectionLost
            elif pubsub.subscribed:
                await pubsub.ping()
                pinged = True

    def _take(self, kind: str, channel_bytes: bytes | None, data: object) -> None:
        channel = (channel_bytes or b"").decode()
        if kind == "message" and isinstance(data, bytes):
            for listener in self._listeners.get(channel, ()):
                listener.hear(data.decode())
        elif kind == "subscribe":
            for listener in self._listeners.get(channel, ()):
                listener.miss()
            if channel in self._live:
                self._live[channel].set()
