"""Accepts all waiting connections of the listening sockets at once.

uvloop accepts one in each round of its loop (as libuv does since 1.47). Under load, when a round takes long, clients
then wait in the system's queue, where nothing counts them, refuses them or asks them to retry.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final

log = logging.getLogger(__name__)

MOST_AT_ONCE: Final = 256
"""More connections than this wait for the next round, so that open connections get their turn."""

PAUSE_SECONDS: Final = 1.0
"""How long no connection is accepted after the system had no room for one."""


class Acceptor:
    """Accepts connections on listening sockets until it is closed. `make_protocol` makes a protocol for each."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        make_protocol: Callable[[], Any],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._sockets = sockets
        self._make_protocol = make_protocol
        self._loop = loop
        self._beginning: set[asyncio.Task[object]] = set()
        self._pause: asyncio.TimerHandle | None = None
        for listening in sockets:
            listening.setblocking(False)
        self._resume()

    async def finish(self) -> None:
        """Accept the connections that already wait, then close the sockets, so that later ones are refused.

        When a listening socket is closed, the system resets the connections that still wait, although clients may have
        sent requests on them.
        """
        for listening in self._sockets:
            self._accept(listening)
        self.close()
        for listening in self._sockets:
            listening.close()
        self._sockets = ()
        await asyncio.gather(*self._beginning)

    def close(self) -> None:
        """Stop accepting connections. Open connections stay open."""
        if self._pause is not None:
            self._pause.cancel()
        for listening in self._sockets:
            self._loop.remove_reader(listening)

    def _resume(self) -> None:
        self._pause = None
        for listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(MOST_AT_ONCE):
            try:
                connection, _address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("no room for another connection", extra={"reason": error.strerror})
                self.close()
                self._pause = self._loop.call_later(PAUSE_SECONDS, self._resume)
                return
            connection.setblocking(False)
            task = self._loop.create_task(self._begin(connection))
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)

    async def _begin(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make_protocol, connection)
        except OSError as error:  # the client has hung up already
            log.debug("connection lost", extra={"reason": error.strerror})
            connection.close()
