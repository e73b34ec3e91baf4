"""The connections to one server: a bounded number, kept open between requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from gateway.http_client.connection import HttpConnection
from gateway.http_client.failures import HttpFailure, HttpReason

Connect: TypeAlias = Callable[[float], Awaitable[HttpConnection]]
"""Open a connection before a deadline, a time of the event loop."""

_KEEP_ALIVE_MARGIN_SECONDS: Final = 1.0
"""A connection is not used this long before its server closes it: a request could meet the end of it."""


class HttpPool:
    """Hands out connections, each to one request at a time.

    Each connection takes a place from the moment it is opened until it is closed. The connection that was used last is
    used first, so that those beyond the need become idle and close, after `idle_seconds`.
    """

    def __init__(self, connect: Connect, max_connections: int, idle_seconds: float) -> None:
        self._connect = connect
        self._free_places = max_connections
        self._idle_seconds = idle_seconds
        self._idle: deque[tuple[HttpConnection, float]] = deque()  # each with its last moment
        self._waiters: deque[asyncio.Future[HttpConnection | None]] = deque()  # None grants a place
        self._timer: asyncio.TimerHandle | None = None
        self._keeps = True

    async def take(self, deadline: float) -> HttpConnection:
        """Return a connection that waits for a request. It comes back by itself after the response, or closes.

        The deadline is a time of the event loop. If all places stayed taken, or no connection could be opened, this
        raises `HttpFailure`, and nothing was sent.
        """
        while True:
            connection = self._pop_idle()
            if connection is not None:
                return connection
            if self._free_places > 0:
                self._free_places -= 1
            else:
                connection = await self._wait(deadline)
                if connection is not None:
                    if connection.is_usable():
                        return connection
                    connection.abort()
                    continue
            connection = await self._open(deadline)
            if connection is not None:
                return connection

    def freed(self, connection: HttpConnection) -> None:
        """Give a connection to the next request, or keep it."""
        waiter = self._next_waiter()
        if waiter is not None:
            waiter.set_result(connection)
        elif self._keeps:
            self._keep(connection)
        else:
            connection.abort()

    def lost(self, connection: HttpConnection) -> None:
        """Give the place of a closed connection to the next request."""
        if self._idle:
            self._idle = deque(kept for kept in self._idle if kept[0] is not connection)
        self._free_place()

    def stop_keeping(self) -> None:
        """Close unused connections, now and from now on. Requests are still served."""
        self._keeps = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection, _ in list(self._idle):
            connection.abort()
        self._idle.clear()

    def _pop_idle(self) -> HttpConnection | None:
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection, last_moment = self._idle.pop()
            if now < last_moment and connection.is_usable():
                return connection
            connection.abort()
        return None

    async def _open(self, deadline: float) -> HttpConnection | None:
        """Open a connection in a place that the caller has taken; None if it was closed at once."""
        try:
            connection = await self._connect(deadline)
        except BaseException:
            self._free_place()
            raise
        if connection.is_lost:
            self._free_place()
            raise HttpFailure(HttpReason.UNREACHABLE, sent=False, detail="the connection was closed")
        connection.owner = self
        return connection

    async def _wait(self, deadline: float) -> HttpConnection | None:
        """Wait for a connection, or for a place: None."""
        waiter: asyncio.Future[HttpConnection | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                return await waiter
        except TimeoutError:
            self._give_back(waiter)
            raise HttpFailure(HttpReason.BUSY, sent=False, detail="all connections stayed in use") from None
        except BaseException:
            self._give_back(waiter)
            raise

    def _give_back(self, waiter: asyncio.Future[HttpConnection | None]) -> None:
        """Pass on what a waiter got that left at the same moment."""
        if waiter.cancelled() or not waiter.done():
            waiter.cancel()
            return
        connection = waiter.result()
        if connection is None:
            self._free_place()
        elif connection.is_usable():
            self.freed(connection)
        else:
            connection.abort()

    def _free_place(self) -> None:
        waiter = self._next_waiter()
        if waiter is None:
            self._free_places += 1
        else:
            waiter.set_result(None)

    def _next_waiter(self) -> asyncio.Future[HttpConnection | None] | None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                return waiter
        return None

    def _keep(self, connection: HttpConnection) -> None:
        seconds = self._idle_seconds
        if connection.keep_alive_seconds is not None:
            seconds = min(seconds, connection.keep_alive_seconds - _KEEP_ALIVE_MARGIN_SECONDS)
        loop = asyncio.get_running_loop()
        last_moment = loop.time() + seconds
        self._idle.append((connection, last_moment))
        if self._timer is None:
            self._timer = loop.call_at(last_moment, self._close_unused)

    def _close_unused(self) -> None:
        """Close the connections whose last moment has passed, and come back for the others."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        passed = [connection for connection, last_moment in self._idle if last_moment <= now]
        self._idle = deque(kept for kept in self._idle if kept[1] > now)
        for connection in passed:
            connection.abort()
        self._timer = None
        if self._idle:
            self._timer = loop.call_at(min(last_moment for _, last_moment in self._idle), self._close_unused)
