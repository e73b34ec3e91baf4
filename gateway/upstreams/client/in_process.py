"""Serves server objects in this process, and opens connections to them: HTTP over pairs of sockets.

So an object is called exactly as a server elsewhere is. Its lifespan is entered once a process.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import logging
import math
import socket
from collections.abc import Callable, MutableMapping
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from gateway.http_client.connection import HttpConnection
from gateway.http_client.failures import HttpFailure, HttpReason
from gateway.upstreams.client.server_objects import served_object
from gateway.upstreams.config.server_objects import ObjectFailure, find_object, told

log = logging.getLogger(__name__)

ADDRESS: Final = "http://localhost:8000"
"""What objects see as their address. Those that check it accept this one."""

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 5.0
"""How long the lifespan of an object may take to start and to end."""

PAUSE_SECONDS: Final = 1.0
"""How long an object that has failed is not started again."""

_KEEP_ALIVE_SECONDS: Final = 86_400
"""Only the client closes connections that are not in use."""

_ENDED: Final = "its lifespan has ended"


class ServerObjects:
    """The server objects of this process, by what the file of upstreams calls them. Belongs to one event loop."""

    def __init__(self) -> None:
        self._hosted: dict[str, HostedObject] = {}

    def hosted(self, reference: str) -> HostedObject:
        """Return an object, which is not started yet. Upstreams that name the same one share it."""
        return self._hosted.setdefault(reference, HostedObject(reference))

    async def aclose(self) -> None:
        """End all lifespans."""
        await asyncio.gather(*(hosted.aclose() for hosted in self._hosted.values()))


class HostedObject:
    """One server object. It starts when the first connection is opened, and again if it has ended."""

    def __init__(self, reference: str) -> None:
        self._reference = reference
        self._running: asyncio.Task[None] | None = None
        self._started: asyncio.Future[_ServedInProcess] | None = None
        self._starts_at = -math.inf
        self._stopping = asyncio.Event()

    async def connect(self, deadline: float) -> HttpConnection:
        """Return a new connection to it; see `Connector.connect`."""
        started = self._start()
        try:
            async with asyncio.timeout_at(deadline):
                serving = await asyncio.shield(started)
        except TimeoutError:
            raise _unreachable("its lifespan has not started yet") from None
        except ObjectFailure as failure:
            raise _unreachable(str(failure)) from None
        # Later requests on this connection, which others make, must not run in the context of this one.
        return await asyncio.create_task(serving.connect(), context=contextvars.Context())

    async def aclose(self) -> None:
        """End its lifespan."""
        self._stopping.set()
        if self._running is not None and self._started is not None:
            if self._started.done():
                await asyncio.wait({self._running}, timeout=STOP_SECONDS)
            if self._running.cancel():
                await asyncio.wait({self._running}, timeout=STOP_SECONDS)

    def _start(self) -> asyncio.Future[_ServedInProcess]:
        """Return what is serving soon, unless the object has failed just now."""
        loop = asyncio.get_running_loop()
        has_ended = self._running is None or self._running.done()
        if self._started is None or (has_ended and loop.time() >= self._starts_at):
            self._started = loop.create_future()
            self._running = asyncio.create_task(self._run(self._started), context=contextvars.Context())
        return self._started

    async def _run(self, started: asyncio.Future[_ServedInProcess]) -> None:
        """Serve the object until it is to stop, or has ended."""
        try:
            await self._serve(started)
            problem = "" if self._stopping.is_set() else _ENDED
        except ObjectFailure as failure:
            problem = str(failure)
        except asyncio.CancelledError:
            problem = "its lifespan was cancelled"
        except (Exception, SystemExit) as error:  # noqa: BLE001 - its code may raise anything, even exit
            problem = f"its lifespan fails: {told(error)}"
        loop = asyncio.get_running_loop()
        if started.done():
            started.result().close()
            started = self._started = loop.create_future()
            if problem:
                log.warning("server object ended", extra={"object": self._reference, "reason": problem})
        started.set_exception(ObjectFailure(problem or _ENDED))
        started.exception()  # perhaps nobody waits
        self._starts_at = loop.time() + PAUSE_SECONDS

    async def _serve(self, started: asyncio.Future[_ServedInProcess]) -> None:
        limit = asyncio.timeout(START_SECONDS)
        served = served_object(find_object(self._reference))
        lifespan = _ObjectLifespan(self._stopping)

        def begin() -> None:
            limit.reschedule(None)
            started.set_result(_ServedInProcess(served.app, lifespan.state))

        try:
            async with limit, served.held():
                await lifespan.run(served.app, begin)
        except TimeoutError:
            if not limit.expired():
                raise
            raise ObjectFailure(f"its lifespan does not start within {START_SECONDS:.0f} seconds") from None


class _ObjectLifespan:
    """The lifespan of an ASGI application.

    Attributes:
        state: what the application keeps for its requests.
    """

    def __init__(self, stopping: asyncio.Event) -> None:
        self.state: dict[str, Any] = {}
        self._stopping = stopping
        self._is_supported = False
        self._begin: Callable[[], None] | None = None
        self._failure = ""

    async def run(self, app: ASGIApp, begin: Callable[[], None]) -> None:
        """Run it until it is to stop, and call `begin` once it has started. Some applications have none.

        Raises:
            ObjectFailure: the application says that it cannot start.
        """
        self._begin = begin
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self.state}
        try:
            await app(scope, self._receive, self._send)
        except Exception:
            if self._is_supported:
                raise
        if self._failure:
            raise ObjectFailure(f"its lifespan fails: {self._failure}")
        if not self._is_supported:
            begin()
            await self._stopping.wait()

    async def _receive(self) -> dict[str, str]:
        if not self._is_supported:
            self._is_supported = True
            return {"type": "lifespan.startup"}
        await self._stopping.wait()
        return {"type": "lifespan.shutdown"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        begin, self._begin = self._begin, None
        if message["type"] == "lifespan.startup.complete" and begin is not None:
            begin()
        elif message["type"].endswith(".failed"):
            *_, self._failure = message.get("message", "").splitlines() or [""]


class _ServedInProcess:
    """Serves an application over connections within this process."""

    def __init__(self, app: ASGIApp, app_state: dict[str, Any]) -> None:
        self._state = ServerState()
        config = uvicorn.Config(
            app,
            http=HttpToolsProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level=None,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        )
        self._protocol = functools.partial(HttpToolsProtocol, config, self._state, app_state)

    async def connect(self) -> HttpConnection:
        """Return a new connection."""
        loop = asyncio.get_running_loop()
        ours, its = socket.socketpair()
        with contextlib.ExitStack() as unused:
            unused.enter_context(ours)
            unused.enter_context(its)
            await loop.connect_accepted_socket(self._accepted, its)
            _, connection = await loop.create_unix_connection(HttpConnection, sock=ours)
            unused.pop_all()
        return connection

    def close(self) -> None:
        """Close all connections: the application serves nobody any more."""
        for connection in list(self._state.connections):
            connection.transport.abort()

    def _accepted(self) -> HttpToolsProtocol:
        protocol = self._protocol()
        protocol.access_log = False
        return protocol


def _unreachable(detail: str) -> HttpFailure:
    return HttpFailure(HttpReason.UNREACHABLE, sent=False, detail=detail)
