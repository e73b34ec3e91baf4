"""The connections of one upstream that is called in sessions: who shares one, how many there are, when they close."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping
from typing import Any, Final, Protocol, TypeAlias, Unpack

from gateway.upstreams.failures import Reason, UpstreamFailure
from gateway.upstreams.ports import RequestOptions, UpstreamCaller

OPEN_SECONDS: Final = 60.0
"""How long opening a connection may take. A request does not wait longer than its own limit."""

CLOSE_SECONDS: Final = 5.0
"""How long closing connections may take before they are left alone."""

ROOM_SECONDS: Final = 2.0
"""How long a request waits for room if all connections are in use."""

OnChange: TypeAlias = Callable[[str, dict[str, Any]], None]
"""Takes the method and the parameters of a notification that belongs to no request."""


class SessionConnection(Protocol):
    """One session of an upstream: over HTTP, or a child process."""

    async def open(self, requester: UpstreamCaller, *, seconds: float) -> dict[str, Any]:
        """Start it, and return the result of `initialize`, whose version is one of `SPOKEN`.

        Raises:
            UpstreamFailure: there is no session; nothing of a caller was sent.
            UpstreamError: the upstream refuses to begin one.
        """
        ...

    async def request(
        self, method: str, params: Mapping[str, Any], **options: Unpack[RequestOptions]
    ) -> dict[str, Any]:
        """Send a request and return its result; see `StatelessClient.request`.

        Raises:
            LostSession: the session had ended before the request came, so the upstream has not acted.
        """
        ...

    async def aclose(self) -> None:
        """End the session, and release everything it holds."""
        ...


class Subscribers:
    """Those who hear the notifications of one connection that belong to no request; `heard_by` may hear others too.

    Attributes:
        can_hear: whether the upstream can send any; the connection sets it.
        ended: set by the connection once it takes no further request.
        uris: how often somebody follows a resource.
    """

    def __init__(self, heard_by: list[OnChange] | None = None) -> None:
        self.can_hear = False
        self.ended = asyncio.Event()
        self.uris: Counter[str] = Counter()
        self._heard_by = [] if heard_by is None else heard_by

    def notice(self, method: str, params: dict[str, Any]) -> bool:
        """Pass on a notification, such as that a list has changed. Return whether anybody hears it."""
        for hear in list(self._heard_by):
            hear(method, params)
        return bool(self._heard_by)

    @contextlib.contextmanager
    def hearing(self, hear: OnChange) -> Iterator[None]:
        """Hear them while the context is open."""
        self._heard_by.append(hear)
        try:
            yield
        finally:
            self._heard_by.remove(hear)


MakeConnection: TypeAlias = Callable[[Subscribers], SessionConnection]
"""Makes a connection, which is not open yet. It gets who hears what the upstream sends outside of requests."""


class PooledConnection:
    """A connection that requests with the same key share.

    Attributes:
        introduction: what the upstream answered to `initialize`.
    """

    def __init__(self, key: Hashable, make: MakeConnection, heard_by: list[OnChange] | None) -> None:
        self.key = key
        self.subscribers = Subscribers(heard_by)
        self.connection = make(self.subscribers)
        self.introduction: dict[str, Any] = {}
        self.opening: asyncio.Task[dict[str, Any]] | None = None
        self.uses = 0
        self.is_discarded = False
        self.closes: asyncio.TimerHandle | None = None

    @property
    def is_lost(self) -> bool:
        """Whether it takes no further request."""
        return self.subscribers.ended.is_set()

    async def opened(self) -> None:
        """Wait until it is open. It is opened once, also if one of those who wait leaves."""
        if self.opening is not None:
            self.introduction = await asyncio.shield(self.opening)


class ConnectionPool:
    """Opens connections when requests need them: one for each key. Unused ones are closed after `idle_seconds`.

    `max_connections` are open at once. If there is no room, the one that was unused for the longest time is closed. A
    listener of one connection `hears_all` if they lead to one object, which announces a change on any of them.

    Not thread-safe: it belongs to one event loop.
    """

    def __init__(
        self,
        upstream: str,
        make: MakeConnection,
        *,
        max_connections: int,
        idle_seconds: float,
        hears_all: bool = False,
    ) -> None:
        self._heard_by: list[OnChange] | None = [] if hears_all else None
        self._upstream = upstream
        self._make = make
        self._max_connections = max_connections
        self._idle_seconds = idle_seconds
        self._pooled: dict[Hashable, PooledConnection] = {}  # those that were used last come last
        self._open = 0
        self._closing: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
        self._keeps = True

    @contextlib.asynccontextmanager
    async def use(
        self, key: Hashable | None, requester: UpstreamCaller, *, seconds: float
    ) -> AsyncIterator[PooledConnection]:
        """Use the connection with a key; without a key, one that nobody else uses. It is open in the context.

        Raises:
            UpstreamFailure: it could not be opened, or there is no room. Nothing of a caller was sent.
        """
        pooled = await self._taken(key, seconds)
        try:
            if pooled.opening is None:
                pooled.opening = asyncio.create_task(pooled.connection.open(requester, seconds=OPEN_SECONDS))
                pooled.opening.add_done_callback(_retrieved)
            try:
                async with asyncio.timeout(seconds):
                    await pooled.opened()
            except TimeoutError:
                detail = "its session did not open in time"
                raise UpstreamFailure(self._upstream, Reason.TIMED_OUT, sent=False, detail=detail) from None
            except Exception:
                self.discard(pooled)
                raise
            yield pooled
        finally:
            self._left(pooled)

    def discard(self, pooled: PooledConnection) -> None:
        """Let no further request use a connection. It is closed when those that use it have ended."""
        if self._pooled.get(pooled.key) is pooled:
            del self._pooled[pooled.key]
        pooled.is_discarded = True

    async def aclose(self) -> None:
        """Close unused connections, and each other one as soon as nobody uses it. Requests are still served."""
        self._keeps = False
        for pooled in [each for each in self._pooled.values() if not each.uses]:
            self._close(pooled)
        if self._closing:
            await asyncio.wait(self._closing, timeout=CLOSE_SECONDS)

    async def _taken(self, key: Hashable | None, seconds: float) -> PooledConnection:
        """Return the connection with a key, and count its use."""
        pooled = None if key is None else self._pooled.pop(key, None)
        if pooled is not None and pooled.is_lost:
            pooled.is_discarded = True
            if not pooled.uses:
                self._close(pooled)
            pooled = None
        if pooled is None:
            await self._room(seconds)
            other = None if key is None else self._pooled.pop(key, None)  # made while this request waited
            pooled = other or self._made(key)
        if pooled.closes is not None:
            pooled.closes.cancel()
            pooled.closes = None
        pooled.uses += 1
        self._pooled[pooled.key] = pooled
        return pooled

    def _made(self, key: Hashable | None) -> PooledConnection:
        pooled = PooledConnection(object() if key is None else key, self._make, self._heard_by)
        pooled.is_discarded = key is None
        self._open += 1
        return pooled

    async def _room(self, seconds: float) -> None:
        """Wait until one more connection may be opened."""
        ends_at = asyncio.get_running_loop().time() + min(ROOM_SECONDS, seconds)
        while self._open >= self._max_connections:
            unused = next((each for each in self._pooled.values() if not each.uses), None)
            if unused is not None:
                self._close(unused)
                return
            self._freed.clear()
            try:
                async with asyncio.timeout_at(ends_at):
                    await self._freed.wait()
            except TimeoutError:
                detail = 'all its connections are in use; the option "max_connections" of the upstream sets how many'
                raise UpstreamFailure(self._upstream, Reason.BUSY, sent=False, detail=detail) from None

    def _left(self, pooled: PooledConnection) -> None:
        pooled.uses -= 1
        if pooled.uses:
            return
        self._freed.set()
        if pooled.is_discarded or pooled.is_lost or not self._keeps:
            self._close(pooled)
        else:
            loop = asyncio.get_running_loop()
            pooled.closes = loop.call_later(self._idle_seconds, self._close, pooled)

    def _close(self, pooled: PooledConnection) -> None:
        """Close a connection that nobody uses."""
        self.discard(pooled)
        if pooled.closes is not None:
            pooled.closes.cancel()
            pooled.closes = None
        if pooled.opening is not None:
            pooled.opening.cancel()
        self._open -= 1
        task = asyncio.create_task(pooled.connection.aclose())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _retrieved(opening: asyncio.Task[dict[str, Any]]) -> None:
    """Take note of a failure that nobody waits for any more."""
    if not opening.cancelled():
        opening.exception()
