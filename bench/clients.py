"""Clients that decide what to send next by what they were answered, many at once, on plain sockets and one epoll.

A client is a generator: it yields the bytes of a request and is sent the answer, or yields a `Pause` to go on after it.
Where requests are prepared and always the same, `bench.load` is the cheaper load.
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
"""The last part of every wait is spent looking at the clock: epoll is no more exact than that."""


class WrongAnswer(Exception):
    """A server answered with something else than it was asked for. The message shows it."""


class Pause(NamedTuple):
    """What a client yields that waits before its next request."""

    seconds: float


class Answer(NamedTuple):
    """What a client is sent for a request."""

    status: int
    body: bytes


Client: TypeAlias = Generator[bytes | Pause, Answer | None, None]


def together(port: int, clients: Iterable[Client]) -> None:
    """Let clients talk to the server on `port` from now on, all at once, until each has come to its end.

    Raises:
        LoadError: the server closed a connection that it was to answer on, or stopped answering.
    """
    as_they_come(port, ((0.0, client) for client in clients))


def as_they_come(port: int, arrivals: Iterable[tuple[float, Client]], *, until: float = math.inf) -> None:
    """Let each client begin at its time, however many are still at it then, until all have come to their ends.

    A client that waits for an answer has a connection to itself; there are as many as that takes, all kept alive.

    Args:
        port: where the server listens, on 127.0.0.1.
        arrivals: times on the clock `time.perf_counter` in ascending order, and who begins then.
        until: at this time whoever has not come to an end is left alone, and the connections are closed.

    Raises:
        LoadError: the server closed a connection that it was to answer on, or stopped answering.
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
    """One connection, who waits for an answer on it, and what has arrived of that."""

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
        """Hand on the answers that come until the time `due`; the first ends the wait."""
        if due == math.inf and len(self._idle) == len(self._connections):
            return
        seconds = max(0.0, due - time.perf_counter() - SPIN_SECONDS)
        ready = self._poll.poll(min(seconds, LONGEST_WAIT_SECONDS))
        if not ready and seconds >= LONGEST_WAIT_SECONDS:
            raise LoadError(f"no answer for {LONGEST_WAIT_SECONDS:g} seconds")
        for fd, _event in ready:
            self._read(self._connections[fd])

    def _go_on(self, client: Client, answer: Answer | None) -> None:
        """Let a client do its next thing."""
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
        """Forget a connection that the server closed while nobody waited for an answer on it."""
        if connection.client is not None:
            raise LoadError("the server closed a connection")
        del self._connections[connection.socket.fileno()]
        self._idle.remove(connection)
        connection.socket.close()
