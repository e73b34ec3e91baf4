"""The client of an upstream that is called in sessions: each request takes one of its connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Hashable, Mapping, Sequence
from typing import Any, Final, Unpack

from gateway.protocol.upstream.asking import ASKING_METHODS
from gateway.protocol.upstream.cleaning import drop_reserved
from gateway.upstreams.client.connections import SHARED_KEY, ConnectionPool, PooledConnection, Subscribers
from gateway.upstreams.client.task_tools import TaskTools
from gateway.upstreams.config.definition import Scope
from gateway.upstreams.failures import LostSession, Reason, UpstreamError, UpstreamFailure
from gateway.upstreams.held.lanes import Lanes
from gateway.upstreams.ports import Changes, RequestOptions, UpstreamCaller

DISCOVER: Final = "server/discover"

ASKING_SECONDS: Final = 7 * 24 * 3600.0
"""How long a request may take that asks its user: longer than any call."""

LISTEN_OPEN_SECONDS: Final = 30.0
"""How long a session may take to open for a stream of changes."""

SUBSCRIBE_SECONDS: Final = 10.0
MAX_SUBSCRIBED_BYTES: Final = 64 * 1024
"""How long a subscription may take, and how large its answer may be."""

MAX_WAITING_CHANGES: Final = 1000
"""How many changes may wait to be passed on. They say only that something is to be read again."""

_RESOURCES: Final = "resourceSubscriptions"
_ABOUT_TOOLS: Final = frozenset({"tools/list", "tools/call"})


class SessionClient:
    """Sends requests to one upstream in sessions. The scope says who shares one.

    Not thread-safe: it belongs to one event loop.
    """

    probe_method: Final = "ping"
    era: Final = "session"

    def __init__(self, upstream: str, connections: ConnectionPool, scope: Scope, *, is_program: bool = False) -> None:
        self._upstream = upstream
        self._connections = connections
        self._scope = scope
        self._task_tools = TaskTools(upstream)
        self._lanes = Lanes()
        self._asks_outside = is_program and scope == "caller"

    async def request(
        self, method: str, params: Mapping[str, Any], **options: Unpack[RequestOptions]
    ) -> dict[str, Any]:
        """Send a request and return its result; see `StatelessClient.request`.

        If the session had ended before the request came, it is sent once more in a new one. The result of
        `server/discover` is what the upstream answered to `initialize`. With `questions`, `seconds` is the time until
        it is sent. The object that takes them ends the request.
        """
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + options["seconds"]
        key = self._key(method, options["requester"])
        questions = options.get("questions")
        if key is None or method not in ASKING_METHODS or not self._has_turns(options["requester"]):
            return await self._request(key, method, params, ends_at, options)
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout_at(ends_at):
                    lane = await stack.enter_async_context(self._lanes.turn(key, questions))
            except TimeoutError:
                detail = "another call of this caller, which may ask its user, takes all the time"
                raise UpstreamFailure(self._upstream, Reason.BUSY, sent=False, detail=detail) from None
            return await self._request(lane, method, params, ends_at, options)

    def _has_turns(self, requester: UpstreamCaller) -> bool:
        """Return whether a question could be that of another call, if they ran on one connection."""
        return self._asks_outside and (self._scope == "caller" or requester.principal is None)

    async def _request(
        self, key: Hashable | None, method: str, params: Mapping[str, Any], ends_at: float, options: RequestOptions
    ) -> dict[str, Any]:
        """Send a request, and once more if the session had ended before it came."""
        with contextlib.suppress(LostSession):
            return await self._attempt(key, method, params, ends_at, options)
        return await self._attempt(key, method, params, ends_at, options)

    async def _attempt(
        self, key: Hashable | None, method: str, params: Mapping[str, Any], ends_at: float, options: RequestOptions
    ) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        questions = options.get("questions")
        async with self._connections.use(key, options["requester"], seconds=ends_at - loop.time()) as pooled:
            introduction, subscribers = pooled.introduction, pooled.subscribers
            subscribers.asks_outside = self._learn_outside
            if questions is not None and self._asks_outside and subscribers.is_unsure:
                self._connections.discard(pooled)  # a late question could be shown as one of this call
                raise LostSession(self._upstream)
            if method == DISCOVER and introduction is not None:
                return introduction.as_discovered()
            remaining: RequestOptions = {**options, "seconds": ends_at - loop.time()}
            if questions is not None:
                remaining["seconds"] = ASKING_SECONDS
                questions.has_begun = True
            if method in _ABOUT_TOOLS and introduction is not None and introduction.offers_tasks:
                whose = self._list_key(options["requester"])
                return await self._task_tools.request(whose, pooled.connection, method, params, **remaining)
            return await pooled.connection.request(method, params, **remaining)

    def _learn_outside(self) -> None:
        self._asks_outside = True

    @contextlib.asynccontextmanager
    async def listen(self, wanted: Mapping[str, Any], *, requester: UpstreamCaller) -> AsyncIterator[Changes]:
        """Hear the changes of an upstream, in the session in which the gateway reads its lists.

        Raises:
            UpstreamError: it refuses a subscription.
            UpstreamFailure: there is no session.
        """
        key = self._key("", requester)
        async with self._connections.use(key, requester, seconds=LISTEN_OPEN_SECONDS) as pooled:
            if not pooled.subscribers.can_hear:
                detail = "it has no stream on which it could announce changes"
                raise UpstreamFailure(self._upstream, Reason.NOT_FOUND, sent=False, detail=detail)
            waiting = asyncio.Queue[tuple[str, dict[str, Any]]](MAX_WAITING_CHANGES)

            def hear(method: str, params: dict[str, Any]) -> None:
                if not waiting.full():
                    waiting.put_nowait((method, params))

            with pooled.subscribers.hearing(hear):
                async with self._following(pooled, wanted.get(_RESOURCES, ()), requester):
                    changes = _changes(pooled.subscribers, waiting)
                    async with contextlib.aclosing(changes):
                        yield changes

    @contextlib.asynccontextmanager
    async def _following(
        self, pooled: PooledConnection, uris: Sequence[str], requester: UpstreamCaller
    ) -> AsyncIterator[None]:
        """Subscribe to resources. Two streams of one session may follow the same: the last one ends that."""
        counts, followed = pooled.subscribers.uris, list[str]()
        try:
            for uri in uris:
                if not counts[uri]:
                    await _subscribe(pooled, "resources/subscribe", uri, requester)
                counts[uri] += 1
                followed.append(uri)
            yield
        finally:
            for uri in followed:
                counts[uri] -= 1
                if not counts[uri]:
                    del counts[uri]
                    with contextlib.suppress(UpstreamError, UpstreamFailure):
                        await _subscribe(pooled, "resources/unsubscribe", uri, requester)

    async def aclose(self) -> None:
        """End the sessions that are not in use, and the others as soon as nobody uses them."""
        await self._connections.aclose()

    def _key(self, method: str, requester: UpstreamCaller) -> Hashable | None:
        """Return what requests that share a session have in common; None for one that has its session alone."""
        if self._scope == "shared":
            return SHARED_KEY
        if self._scope == "call" and method in ASKING_METHODS:
            return None
        return requester.key

    def _list_key(self, requester: UpstreamCaller) -> Hashable:
        """Return what requesters have in common whose lists are the same: in a shared session, their headers."""
        return self._key("", requester), frozenset(requester.headers.items())


async def _subscribe(pooled: PooledConnection, method: str, uri: str, requester: UpstreamCaller) -> None:
    await pooled.connection.request(
        method, {"uri": uri}, requester=requester, seconds=SUBSCRIBE_SECONDS, max_bytes=MAX_SUBSCRIBED_BYTES
    )


async def _changes(
    subscribers: Subscribers, waiting: asyncio.Queue[tuple[str, dict[str, Any]]]
) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
    """Yield changes until the session has ended."""
    ended = asyncio.create_task(subscribers.ended.wait())
    try:
        while True:
            change = asyncio.create_task(waiting.get())
            try:
                await asyncio.wait({change, ended}, return_when=asyncio.FIRST_COMPLETED)
                if not change.done():
                    return
                method, params = change.result()
            finally:
                change.cancel()
            drop_reserved(params)
            yield method, params
    finally:
        ended.cancel()
