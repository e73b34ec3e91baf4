"""The load: a closed loop over keep-alive connections, on plain sockets and one epoll, with prepared requests.

Each connection sends its next request as soon as the last answer is complete and checked. So the number of requests
in flight is the number of connections. Latencies are those of real requests, each from just before `send`
to the moment its last byte was read; nothing is corrected afterwards.

An answer is checked in full the first time. Later answers on the same exchange are compared with it byte by byte,
except for the part that may differ each time (a sealed state). If they differ, they are checked in full again.
"""

from __future__ import annotations

import gc
import select
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

END_OF_HEAD = b"\r\n\r\n"
LAST_CHUNK = b"\r\n0\r\n\r\n"
OK = b"HTTP/1.1 200 "
SEND_BUFFER_BYTES = 1 << 20
"""Large enough to send any request in one go, however large its state."""
LONGEST_WAIT_SECONDS = 10.0

Check = Callable[[bytes], str | None]
"""Reads one answer's body; returns what is wrong with it, or None."""
Varying = Callable[[bytes], bytes]
"""Finds the part of a correct body that may differ each time, b"" for none."""


class LoadError(Exception):
    """The server cannot be measured: it closed a connection, or stopped answering."""


@dataclass(slots=True)
class Exchange:
    """One prepared request and its expected answer; `head` is how the answer begins."""

    request: bytes
    check: Check
    varying: Varying = lambda _body: b""
    head: bytes = OK
    prefix: bytes = b""
    suffix: bytes = b""
    length: int = -1

    def accept(self, body: bytes) -> str | None:
        """Check `body` in full and remember it as the pattern of later ones; returns what is wrong, or None."""
        problem = self.check(body)
        if problem is None:
            part = self.varying(body)
            start = body.index(part) if part else len(body)
            self.prefix, self.suffix, self.length = body[:start], body[start + len(part) :], len(body)
        return problem


@dataclass(slots=True)
class Connection:
    """One keep-alive connection, its exchanges (sent in turn, over and over) and the answer being read."""

    socket: socket.socket
    exchanges: Sequence[Exchange]
    turn: int = 0
    sent_ns: int = 0
    unread: bytes = b""
    body: bytes = b""

    def send(self) -> None:
        """Send the next request."""
        self.sent_ns = time.perf_counter_ns()
        request = self.exchanges[self.turn].request
        if self.socket.send(request) != len(request):
            raise LoadError("a request does not fit into the socket's buffer")


@dataclass(slots=True)
class Measurement:
    """One measured period of load; `latencies_ns` is in ascending order once it is over."""

    latencies_ns: list[int] = field(default_factory=list)
    elapsed_seconds: float = 0.0
    server_cpu_seconds: float = 0.0
    load_cpu_seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)
    last_bodies: list[bytes] = field(default_factory=list)

    @property
    def requests_per_second(self) -> float:
        """Answered requests per second."""
        return len(self.latencies_ns) / self.elapsed_seconds

    @property
    def cpu_us_per_request(self) -> float:
        """CPU time of the server's process per request, in microseconds."""
        return self.server_cpu_seconds * 1e6 / len(self.latencies_ns)

    @property
    def server_busy(self) -> float:
        """Share of its core that the server got; near 1 if the server is the limit and the machine is idle."""
        return self.server_cpu_seconds / self.elapsed_seconds

    @property
    def load_busy(self) -> float:
        """Share of its core that the load used; near 1, the load is the limit and not the server."""
        return self.load_cpu_seconds / self.elapsed_seconds

    def latency_ms(self, quantile: float) -> float:
        """Return the latency that the share `quantile` of requests did not exceed (nearest rank), in milliseconds."""
        return nearest_rank(self.latencies_ns, quantile) / 1e6


def nearest_rank(ascending: Sequence[float], quantile: float) -> float:
    """Return one of the values: the one that the share `quantile` of all does not exceed."""
    return ascending[min(len(ascending) - 1, int(quantile * len(ascending)))]


def connect(port: int, plans: Sequence[Sequence[Exchange]]) -> list[Connection]:
    """Open one connection for each plan."""
    connections = []
    for exchanges in plans:
        link = socket.create_connection(("127.0.0.1", port))
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        link.setblocking(False)
        connections.append(Connection(link, exchanges))
    return connections


def measure(
    port: int,
    plans: Sequence[Sequence[Exchange]],
    *,
    warmup_seconds: float,
    seconds: float,
    server_cpu: Callable[[], float],
) -> Measurement:
    """Load the server on `port` with one connection per plan, and measure `seconds` of it after a warm-up.

    Args:
        port: where the server listens, on 127.0.0.1.
        plans: for each connection, the exchanges that it repeats in turn.
        warmup_seconds: load before the measurement begins, on the same connections.
        seconds: length of the measurement.
        server_cpu: returns the CPU seconds that the server's process has used so far.

    Raises:
        LoadError: the server closed a connection or stopped answering.
    """
    connections = connect(port, plans)
    result = Measurement()
    gc.collect()
    gc.disable()  # a pause here would count as the server's
    try:
        with select.epoll() as poll:
            by_fd = {connection.socket.fileno(): connection for connection in connections}
            for fd in by_fd:
                poll.register(fd, select.EPOLLIN)
            for connection in connections:
                connection.send()
            _exchange_until(time.perf_counter() + warmup_seconds, poll, by_fd, result)
            result.latencies_ns.clear()
            server_before, load_before, start = server_cpu(), time.process_time(), time.perf_counter()
            _exchange_until(start + seconds, poll, by_fd, result)
            result.elapsed_seconds = time.perf_counter() - start
            result.server_cpu_seconds = server_cpu() - server_before
            result.load_cpu_seconds = time.process_time() - load_before
            _drain(poll, by_fd, result)
    finally:
        gc.enable()
        for connection in connections:
            connection.socket.close()
    result.latencies_ns.sort()
    result.last_bodies = [connection.body for connection in connections]
    return result


def _exchange_until(deadline: float, poll: select.epoll, by_fd: dict[int, Connection], result: Measurement) -> None:
    """Read ready answers, check them, and send the next requests until `deadline`. This is the hot loop."""
    deadline_ns = int(deadline * 1e9)
    now_ns = time.perf_counter_ns()
    latencies_ns = result.latencies_ns
    clock_ns = time.perf_counter_ns
    while now_ns < deadline_ns:
        ready = poll.poll(LONGEST_WAIT_SECONDS)
        if not ready:
            raise LoadError(f"no answer for {LONGEST_WAIT_SECONDS:g} seconds")
        for fd, _event in ready:
            connection = by_fd[fd]
            if _read(connection, result):
                now_ns = clock_ns()
                latencies_ns.append(now_ns - connection.sent_ns)
                connection.send()


def _drain(poll: select.epoll, by_fd: dict[int, Connection], result: Measurement) -> None:
    """Read the remaining answers, so that the next measurement finds an idle server."""
    waiting = set(by_fd)
    while waiting:
        ready = poll.poll(LONGEST_WAIT_SECONDS)
        if not ready:
            raise LoadError(f"no answer for {LONGEST_WAIT_SECONDS:g} seconds")
        for fd, _event in ready:
            if _read(by_fd[fd], result):
                waiting.discard(fd)


def _read(connection: Connection, result: Measurement) -> bool:
    """Read the bytes that have arrived, and return whether the answer is complete. A wrong one goes to `result`."""
    data = connection.socket.recv(262_144)
    if not data:
        raise LoadError("the server closed a connection")
    if connection.unread:
        data = connection.unread + data
    exchange = connection.exchanges[connection.turn]
    body_start = data.find(END_OF_HEAD) + len(END_OF_HEAD)
    if not (
        len(data) - body_start == exchange.length
        and data.startswith(exchange.head)
        and data.startswith(exchange.prefix, body_start)
        and data.endswith(exchange.suffix)
    ):
        if not is_complete(data):
            connection.unread = data
            return False
        _check_in_full(exchange, data, body_start, result)
    connection.unread = b""
    connection.body = data[body_start:]
    connection.turn = (connection.turn + 1) % len(connection.exchanges)
    return True


def is_complete(data: bytes) -> bool:
    """Whether `data` holds a whole HTTP/1.1 response, with a Content-Length or in chunks."""
    head, separator, body = data.partition(END_OF_HEAD)
    if not separator:
        return False
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return len(body) >= int(value)
        if name.strip().lower() == b"transfer-encoding":
            return body.endswith(LAST_CHUNK)
    raise LoadError(f"an answer without Content-Length: {head[:200]!r}")


def _check_in_full(exchange: Exchange, data: bytes, body_start: int, result: Measurement) -> None:
    """Check an answer that differs from a known good one, and record what is wrong."""
    problem: str | None
    if data.startswith(exchange.head):
        problem = exchange.accept(data[body_start:])
    else:
        status_line = data[: data.find(b"\r\n")].decode("latin-1")
        problem = f"{status_line}: {data[body_start : body_start + 300]!r}"
    if problem is not None:
        result.wrong.append(problem)
