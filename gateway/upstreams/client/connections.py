"""The connections of one upstream that is called in sessions: who shares one, how many there are, when they close."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping
from typing import Any, Final, Protocol, TypeAlias, Unpack

from gateway.errors import Overloaded
from gateway.observability.upstream_metrics import UpstreamMetrics
from gateway.protocol.upstream.introductions import SessionIntroduction
from gateway.protocol.upstream.notices import VISITED
from gateway.runtime.sources import Clock
from gateway.upstreams.bulkhead import Bulkhead
from gateway.upstreams.failures import Reason, UpstreamFailure
from gateway.upstreams.ports import RequestOptions, UpstreamCaller

OPEN_SECONDS: Final = 60.0
"""How long opening a connection may take. A request does not wait longer than its own limit."""

CLOSE_SECONDS: Final = 5.0
"""How long closing connections may take before they are left alone."""

ROOM_SECONDS: Final = 2.0
"""How long a request waits for room if all connections are in use."""

SHARED_KEY: Final = ()
"""The key of a connection that belongs to no caller, as all share it."""

OnChange: TypeAlias = Callable[[str, dict[str, Any]], None]
"""Takes the method and the parameters of a notification that belongs to no request."""


class SessionConnection(Protocol):
    """One session of an upstream: over HTTP, or a child process."""

    async def open(self, requester: UpstreamCaller, *, seconds: float) -> SessionIntroduction:
        """Start it, and return what `initialize` was answered with, by one of the versions `SPOKEN`.

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
        is_unsure: whether a call has ended without its answer, so that a question may be a late one of that call.
        asks_outside: called when the upstream asks without saying which call it asks for.
        on_lost: called once if the connection has ended by itself.
    """

    def __init__(self, heard_by: list[OnChange] | None = None) -> None:
        self.on_lost: Callable[[], None] = lambda: None
        self.asks_outside: Callable[[], None] = lambda: None
        self.can_hear = False
        self.is_unsure = False
        self.ended = asyncio.Event()
        self.uris: Counter[str] = Counter()
        self._heard_by = [] if heard_by is None else heard_by

    def lose(self) -> None:
        """Note that the connection has ended by itself, unless it was closed."""
        if not self.ended.is_set():
            self.ended.set()
            self.on_lost()

    def notice(self, method: str, params: dict[str, Any]) -> bool:
        """Pass on a notification, such as that a list has changed. Return whether anybody hears it."""
        if method == VISITED:
            return False
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
        opener: the caller for whom it was made; None if it is everybody's.
        introduction: what the upstream answered to `initialize`; None if it is not open.
        state: as metrics show it; "" if it is not open.
    """

    def __init__(self, key: Hashable, opener: Hashable, make: MakeConnection, heard_by: list[OnChange] | None) -> None:
        self.key = key
        self.opener = opener
        self.subscribers = Subscribers(heard_by)
        self.connection = make(self.subscribers)
        self.introduction: SessionIntroduction | None = None
        self.opening: asyncio.Task[SessionIntroduction] | None = None
        self.uses = 0
        self.is_discarded = False
        self.state = ""
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

    `max_connections` are open at once; one counts until it is closed. Callers share them as they share places, see
    `Bulkhead`. If there is no room, an unused one is closed: of the caller who has most of them, if these are more than
    those of the caller who waits. Among several, it is the one that was unused for the longest time.

    `on_idle` is called if a connection is not used any more. A listener of one connection `hears_all` if they lead to
    one object, which announces a change on any of them.

    Not thread-safe: it belongs to one event loop.
    """

    def __init__(
        self,
        upstream: str,
        make: MakeConnection,
        telemetry: UpstreamMetrics,
        *,
        max_connections: int,
        idle_seconds: float,
        hears_all: bool = False,
        on_idle: Callable[[ConnectionPool], object] = lambda _pool: None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._heard_by: list[OnChange] | None = [] if hears_all else None
        self._on_idle = on_idle
        self._upstream = upstream
        self._telemetry = telemetry
        self._counts = telemetry.sessions(upstream, max_connections)
        self._clock = clock
        self._make = make
        self._places = Bulkhead(max_connections, None, lambda _count: None, wait_seconds=ROOM_SECONDS)
        self._waiting: list[Hashable] = []
        self._idle_seconds = idle_seconds
        self._pooled: dict[Hashable, PooledConnection] = {}  # those that were used last come last
        self._closing: set[asyncio.Task[None]] = set()
        self._keeps = True

    @contextlib.asynccontextmanager
    async def use(
        self, key: Hashable | None, requester: UpstreamCaller, *, seconds: float
    ) -> AsyncIterator[PooledConnection]:
        """Use the connection with a key; without a key, one that nobody else uses. It is open in the context.

        Raises:
            UpstreamFailure: it could not be opened, or there is no room. Nothing of a caller was sent.
        """
        pooled = await self._taken(key, None if key == SHARED_KEY else requester.principal, seconds)
        try:
            if pooled.opening is None:
                pooled.opening = asyncio.create_task(pooled.connection.open(requester, seconds=OPEN_SECONDS))
                pooled.opening.add_done_callback(functools.partial(self._opened, pooled, self._clock()))
            try:
                async with asyncio.timeout(seconds):
                    await pooled.opened()
            except TimeoutError:
                raise self._failure(Reason.TIMED_OUT, "its session did not open in time") from None
            except Exception as error:
                self.discard(pooled)
                if isinstance(error, UpstreamFailure):
                    error.sent = False  # only `initialize` was
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

    async def _taken(self, key: Hashable | None, caller: Hashable, seconds: float) -> PooledConnection:
        """Return the connection with a key, and count its use."""
        pooled = None if key is None else self._pooled.pop(key, None)
        if pooled is not None and pooled.is_lost:
            pooled.is_discarded = True
            if not pooled.uses:
                self._close(pooled)
            pooled = None
        if pooled is None:
            await self._enter(caller, seconds)
            pooled = None if key is None else self._pooled.pop(key, None)
            if pooled is None:
                pooled = self._made(key, caller)
            else:  # it was made while this request waited
                self._places.leave(caller)
        if pooled.closes is not None:
            pooled.closes.cancel()
            pooled.closes = None
        pooled.uses += 1
        self._pooled[pooled.key] = pooled
        if pooled.state == "idle":
            self._count(pooled, "in_use")
        return pooled

    def _made(self, key: Hashable | None, caller: Hashable) -> PooledConnection:
        pooled = PooledConnection(object() if key is None else key, caller, self._make, self._heard_by)
        pooled.is_discarded = key is None
        pooled.subscribers.on_lost = functools.partial(self._lost, pooled)
        self._count(pooled, "opening")
        return pooled

    async def _enter(self, caller: Hashable, seconds: float) -> None:
        """Wait until a caller may open one more connection."""
        self._waiting.append(caller)
        try:
            async with asyncio.timeout(seconds):
                await self._places.enter(caller, lambda: self.make_room(caller, self._places.held_by))
        except (TimeoutError, Overloaded):
            detail = 'all its connections are in use; the option "max_connections" of the upstream sets how many'
            self._telemetry.session_failed(self._upstream, Reason.BUSY)
            raise self._failure(Reason.BUSY, detail) from None
        finally:
            self._waiting.remove(caller)

    def make_room(self, caller: Hashable, held_by: Callable[[Hashable], int]) -> bool:
        """Close an unused connection for a caller who waits, and return whether there was one.

        `held_by` says how many connections a caller has, of this pool or in all.
        """
        own = held_by(caller)
        unused = [(each, held_by(each.opener)) for each in self._pooled.values() if not each.uses]
        closable = [(each, held) for each, held in unused if each.opener == caller or held > own]
        if closable:
            self._close(max(closable, key=lambda found: found[1])[0])
        return bool(closable)

    def _left(self, pooled: PooledConnection) -> None:
        pooled.uses -= 1
        if pooled.uses:
            return
        if pooled.is_discarded or pooled.is_lost or not self._keeps:
            self._close(pooled)
        else:
            loop = asyncio.get_running_loop()
            if pooled.state == "in_use":
                self._count(pooled, "idle")
            pooled.closes = loop.call_later(self._idle_seconds, self._close, pooled)
            if not any(self.make_room(caller, self._places.held_by) for caller in self._waiting):
                self._on_idle(self)

    def _close(self, pooled: PooledConnection) -> None:
        """Close a connection that nobody uses."""
        self.discard(pooled)
        if pooled.closes is not None:
            pooled.closes.cancel()
            pooled.closes = None
        if pooled.opening is not None:
            pooled.opening.cancel()
        self._count(pooled, "")
        task = asyncio.create_task(pooled.connection.aclose())
        self._closing.add(task)
        task.add_done_callback(functools.partial(self._closed, pooled))

    def _closed(self, pooled: PooledConnection, closing: asyncio.Task[None]) -> None:
        """Give its place to a caller who waits."""
        self._closing.discard(closing)
        self._places.leave(pooled.opener)

    def _opened(self, pooled: PooledConnection, began: float, opening: asyncio.Task[SessionIntroduction]) -> None:
        """Count how opening has ended. Nobody may wait for it any more."""
        problem = None if opening.cancelled() else opening.exception()
        if problem is not None:
            reason = problem.reason.value if isinstance(problem, UpstreamFailure) else "error"
            self._telemetry.session_failed(self._upstream, reason)
        elif pooled.state == "opening":
            self._telemetry.session_opened(self._upstream, self._clock() - began)
            self._count(pooled, "in_use" if pooled.uses else "idle")

    def _lost(self, pooled: PooledConnection) -> None:
        """Count a connection that has ended by itself, unless it was not open yet."""
        if pooled.state in ("in_use", "idle"):
            self._telemetry.session_lost(self._upstream)
        if not pooled.uses:
            self._count(pooled, "")

    def _count(self, pooled: PooledConnection, state: str) -> None:
        """Count a connection in another state."""
        self._counts.move(pooled.state, state)
        pooled.state = state

    def _failure(self, reason: Reason, detail: str) -> UpstreamFailure:
        """Return a failure of a request that was not sent, counted."""
        self._telemetry.failed(self._upstream, reason)
        return UpstreamFailure(self._upstream, reason, sent=False, detail=detail)
