"""uvicorn's server with our own connections, an orderly drain, and an exit code that shows a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import FrameType
from typing import TypeAlias

import uvicorn

from gateway.http.acceptor import Acceptor
from gateway.http.asgi import AsgiApp
from gateway.http.callbacks import Callbacks
from gateway.http.connection import Connection, ConnectionRules
from gateway.http.limits import Limits
from gateway.http.slow_clients import Sweeper

log = logging.getLogger(__name__)

BACKLOG = 2048

SignalHandler: TypeAlias = Callable[[int, FrameType | None], object]

LOOK_SECONDS = 0.1
"""How often a replica that drains checks whether all work is finished."""

NEWCOMER_LOOKS = 10
"""How many times a replica that drains checks whether new connections have sent their first request."""

REPEATED_SIGNAL_SECONDS = 0.5
"""Supervisors often signal both a process and its group. Within this time, that counts as one signal."""


class DrainingServer(uvicorn.Server):
    """Serves until SIGTERM or SIGINT, gives notice, and then finishes the work in flight.

    During the notice (`notice_seconds`) it serves everything as before, so that load balancers have time to see that
    this replica shuts down. Then the work in flight has `drain_seconds`, and so has what others need of the process,
    as long as it `is_needed`. A second signal ends it immediately. Unlike
    uvicorn's server, it returns after a signal instead of raising it again. So the process can exit with 0 after a
    clean end, and with 1 after a forced end (`force_exit`).

    `path` is that of the endpoint, for the log. If it `answers_checks`, it listens until the work in flight is
    finished, so that health checks can distinguish a replica that drains from one that is gone. Do not use that for a
    socket that the next process serves.

    `on_notice` and `on_leaving` are called once, on the event loop, at the first signal and when the notice is over;
    `on_signal` in the signal handler, at each signal; `on_ready` once it serves. `further_signals` handles other
    signals while it serves, and gets the handler that ends it.
    """

    def __init__(
        self,
        app: AsgiApp,
        *,
        limits: Limits,
        callbacks: Callbacks,
        drain_seconds: float,
        notice_seconds: float = 0.0,
        path: str = "/",
        answers_checks: bool = False,
        is_needed: Callable[[], bool] = lambda: False,
        on_notice: Callable[[], None] = lambda: None,
        on_leaving: Callable[[], None] = lambda: None,
        on_signal: Callable[[], None] = lambda: None,
        on_ready: Callable[[], None] = lambda: None,
        further_signals: Callable[[SignalHandler], AbstractContextManager[None]] | None = None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="uvloop",
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
            )
        )
        self._notice_seconds = notice_seconds
        self._drain_seconds = drain_seconds
        self._answers_checks = answers_checks
        self._is_needed = is_needed
        self._notice_ends_at: float | None = None
        self._first_signal_at = 0.0
        self._on_notice = on_notice
        self._on_leaving = on_leaving
        self._on_signal = on_signal
        self._on_ready = on_ready
        self._further_signals = further_signals or contextlib.nullcontext
        self._rules = ConnectionRules(limits, callbacks)
        self._path = path
        self._acceptor: Acceptor | None = None
        self._sweeper: Sweeper | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and log the address."""
        await super().startup([])
        if self.started:
            self._acceptor = Acceptor(sockets or (), self.make_connection, asyncio.get_running_loop())
            self._sweeper = Sweeper(self.server_state.connections, asyncio.get_running_loop())
            for sock in sockets or ():
                host, port = sock.getsockname()[:2]
                address = f"[{host}]" if ":" in host else host
                log.info("serving", extra={"url": f"http://{address}:{port}{self._path}"})
            self._on_ready()

    def make_connection(self) -> Connection:
        """Return the protocol object for a new connection."""
        return Connection(self._rules, self.config.loaded_app, self.server_state, self.lifespan.state)

    async def on_tick(self, counter: int) -> bool:
        """Do the work that is due ten times a second, and return whether it is time to stop listening."""
        self._rules.standstills.tick(asyncio.get_running_loop().time())
        if not await super().on_tick(counter):
            return False
        now = time.monotonic()
        if self._notice_ends_at is None:
            self._notice_ends_at = now + self._notice_seconds
            self._on_notice()
        return self.force_exit or now >= self._notice_ends_at

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let the work in flight finish within the drain time, stop accepting connections, and cut off the rest."""
        self._on_leaving()
        deadline = asyncio.get_running_loop().call_later(self._drain_seconds, self._cut_off)
        if self._answers_checks:
            await self._finish_listening()
        else:
            if self._acceptor is not None:
                self._acceptor.close()
            await self._finish_work(self._is_needed)
        await super().shutdown(sockets)
        deadline.cancel()
        # Requests that are cancelled now still answer, and would wait for clients that do not read.
        for connection in list(self.server_state.connections):
            if isinstance(connection, Connection):
                connection.cut_off()
        if self._sweeper is not None:
            self._sweeper.stop()

    async def _finish_listening(self) -> None:
        """Serve until the work in flight is finished, then stop listening without losing new connections.

        A load balancer without health checks sends requests until a connection is refused. If a connection is closed
        without an answer, it cannot know whether its request ran.
        """
        for connection in list(self.server_state.connections):
            if not _is_new(connection):
                connection.shutdown()
        await self._finish_work(lambda: bool(self.server_state.tasks) or self._is_needed())
        if self._acceptor is not None:
            await self._acceptor.finish()
        for _ in range(NEWCOMER_LOOKS):
            if self.force_exit or not any(map(_is_new, self.server_state.connections)):
                break
            await asyncio.sleep(LOOK_SECONDS)

    async def _finish_work(self, goes_on: Callable[[], bool]) -> None:
        while goes_on() and not self.force_exit:
            if self.server_state.tasks:
                await asyncio.wait(self.server_state.tasks, timeout=LOOK_SECONDS)
            else:
                await asyncio.sleep(LOOK_SECONDS)

    def _cut_off(self) -> None:
        log.warning("drain time is over; work in flight is cut off", extra={"requests": len(self.server_state.tasks)})
        self.force_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle SIGTERM and SIGINT while serving."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handled = (signal.SIGTERM, signal.SIGINT)
        originals = {number: signal.signal(number, self.handle_exit) for number in handled}
        try:
            with self._further_signals(self.handle_exit):
                yield
        finally:
            for number, handler in originals.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Shut down at the first signal, and immediately at the second."""
        del frame
        now = time.monotonic()
        self._on_signal()
        if not self.should_exit:
            log.info("leaving", extra={"signal": signal.Signals(sig).name})
            self.should_exit = True
            self._first_signal_at = now
        elif now - self._first_signal_at > REPEATED_SIGNAL_SECONDS:
            log.warning("leaving at once", extra={"signal": signal.Signals(sig).name})
            self.force_exit = True


def _is_new(connection: object) -> bool:
    """Return whether this client has connected, but not yet sent the complete head of a request."""
    return isinstance(connection, Connection) and connection.cycle is None
