"""Clients whose next request depends on the last answer, many at once, on plain sockets and one epoll.

A client is a generator: it yields the bytes of a request and receives the answer, or yields a `Pause` to wait.
For prepared requests that never change, `bench.load` is cheaper.
"""

from __future__ import annotations

import heapq
import math
import select
import socket
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple, TypeAlias

from bench.load import END_OF_HEAD, LONGEST_WAIT_SECONDS, SEND_BUFFER_BYTES, LoadError, is_complete

SPIN_SECONDS = 0.001
"""The last part of every wait, which polls the clock: epoll is not more precise than this."""


class WrongAnswer(Exception):
    """A server returned a wrong answer, which the message shows."""


class Pause(NamedTuple):
    """Yielded by a client to wait before its next request."""

    seconds: float


class Answer(NamedTuple):
    """The answer to a client's request."""

    status: int
    body: bytes


Client: TypeAlias = Generator[bytes | Pause, Answer | None, None]


def together(port: int, clients: Iterable[Client]) -> None:
    """Run all clients at once against the server on `port`, until each has ended.

    Raises:
        LoadError: the server closed a connection before its answer, or stopped answering.
    """
    as_they_come(port, ((0.0, client) for client in clients))


def as_they_come(port: int, arrivals: Iterable[tuple[float, Client]], *, until: float = math.inf) -> None:
    """Start each client at its time, however many others are still running, until all have ended.

    A client that waits for an answer has its own connection; there are as many as needed, all kept alive.

    Args:
        port: where the server listens, on 127.0.0.1.
        arrivals: times of `time.perf_counter` in ascending order, and the client that starts then.
        until: at this time unfinished clients are abandoned, and the connections are closed.

    Raises:
        LoadError: the server closed a connection before its answer, or stopped answering.
    """
    with select.epoll() as poll:
        crowd = _Crowd(port, poll)
        try:
            crowd.run(arrivals, until)
        except OSError as error:
            raise LoadError(f"the server cannot be reached: {error}") from error
        finally:
            crowd.close()


@dataclass(slots=True, eq=False)
class _Connection:
    """One connection, the client that waits for an answer on it, and the bytes that have arrived."""

    socket: socket.socket
    client: Client | None = None
    unread: bytes = b""


class _Crowd:
    def __init__(self, port: int, poll: select.epoll) -> None:
        self._port = port
        self._poll = poll
        self._connections: dict[int, _Connection] = {}
        self._idle: list[_Connection] = []
        self._pauses: list[tuple[float, int, Client]] = []
        self._tie_breaker = count()

    def run(self, arrivals: Iterable[tuple[float, Client]], until: float) -> None:
        coming = iter(arrivals)
        arrival = next(coming, None)
        while arrival is not None or self._pauses or len(self._idle) < len(self._connections):
            now = time.perf_counter()
            if now >= until:
                return
            while arrival is not None and arrival[0] <= now:
                self._go_on(arrival[1], None)
                arrival = next(coming, None)
            while self._pauses and self._pauses[0][0] <= now:
                self._go_on(heapq.heappop(self._pauses)[2], None)
            due = [until]
            due += [arrival[0]] if arrival is not None else []
            due += [self._pauses[0][0]] if self._pauses else []
            self._read_what_comes(min(due))

    def close(self) -> None:
        for connection in self._connections.values():
            connection.socket.close()

    def _read_what_comes(self, due: float) -> None:
        """Deliver the answers that arrive until the time `due`; the first ends the wait."""
        if due == math.inf and len(self._idle) == len(self._connections):
            return
        seconds = max(0.0, due - time.perf_counter() - SPIN_SECONDS)
        ready = self._poll.poll(min(seconds, LONGEST_WAIT_SECONDS))
        if not ready and seconds >= LONGEST_WAIT_SECONDS:
            raise LoadError(f"no answer for {LONGEST_WAIT_SECONDS:g} seconds")
        for fd, _event in ready:
            self._read(self._connections[fd])

    def _go_on(self, client: Client, answer: Answer | None) -> None:
        """Resume a client up to its next request or pause."""
        try:
            wanted = client.send(answer)
        except StopIteration:
            return
        if isinstance(wanted, Pause):
            due = time.perf_counter() + wanted.seconds
            heapq.heappush(self._pauses, (due, next(self._tie_breaker), client))
            return
        connection = self._idle.pop() if self._idle else self._connect()
        connection.client = client
        if connection.socket.send(wanted) != len(wanted):
            raise LoadError("a request does not fit into the socket's buffer")

    def _connect(self) -> _Connection:
        link = socket.create_connection(("127.0.0.1", self._port))
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        link.setblocking(False)
        connection = self._connections[link.fileno()] = _Connection(link)
        self._poll.register(link.fileno(), select.EPOLLIN)
        return connection

    def _read(self, connection: _Connection) -> None:
        data = connection.socket.recv(262_144)
        if not data:
            self._lose(connection)
            return
        connection.unread += data
        if connection.client is not None and is_complete(connection.unread):
            head, _, body = connection.unread.partition(END_OF_HEAD)
            client, connection.client, connection.unread = connection.client, None, b""
            self._idle.append(connection)
            self._go_on(client, Answer(int(head[9:12]), body))

    def _lose(self, connection: _Connection) -> None:
        """Forget an idle connection that the server closed."""
        if connection.client is not None:
            raise LoadError("the server closed a connection")
        del self._connections[connection.socket.fileno()]
        self._idle.remove(connection)
        connection.socket.close()
