"""The metrics port: what it serves, to how many clients, and for how long."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from email.message import Message
from functools import partial

import pytest
from prometheus_client import CollectorRegistry, Gauge

from gateway.errors import ConfigurationError
from gateway.observability.metrics_server import MAX_CONNECTIONS, MAX_HEAD_BYTES, MetricsServer, start_metrics_server
from gateway.runtime.sockets import open_listener
from loadtest.cluster.common import wait_until

SECONDS = 20
"""A time that only a failing test takes."""

LARGE = 16 * 2**20
"""More than a server can send to a client that reads nothing."""

Serve = Callable[..., MetricsServer]


@pytest.fixture
def registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    Gauge("answer", "To everything.", registry=registry).set(42)
    return registry


@pytest.fixture
def serve(registry: CollectorRegistry) -> Iterator[Serve]:
    with contextlib.ExitStack() as stack:

        def start(**seconds: float) -> MetricsServer:
            server = MetricsServer(registry, open_listener("127.0.0.1", 0, backlog=128), "127.0.0.1", **seconds)
            stack.callback(server.stop)
            return server

        yield start


def get(server: MetricsServer, path: str = "/metrics", method: str = "GET", **headers: str) -> tuple[Message, bytes]:
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", method=method, headers=headers)
    with urllib.request.urlopen(request, timeout=SECONDS) as response:
        return response.headers, response.read()


def connect(server: MetricsServer, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS)
    connection.sendall(sent)
    return connection


def answer_to(server: MetricsServer, sent: bytes) -> bytes:
    """Return everything that comes back until the connection closes."""
    with connect(server, sent) as connection:
        return rest_of(connection)


def rest_of(connection: socket.socket) -> bytes:
    told = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            told += piece
    return told


def test_metrics_are_served_from_a_port_of_their_own_until_stopped(registry: CollectorRegistry) -> None:
    server = start_metrics_server(registry, "127.0.0.1", 0)
    assert server.url == f"http://127.0.0.1:{server.port}/metrics"
    headers, body = get(server)
    assert b"answer 42.0" in body
    assert headers["content-type"].startswith("text/plain")
    idle = connect(server)
    server.stop()
    with idle:
        assert rest_of(idle) == b""
    with pytest.raises(ConnectionRefusedError):
        connect(server)


def test_the_client_chooses_the_format_and_what_it_wants(serve: Serve) -> None:
    server = serve()
    headers, body = get(server, Accept="application/openmetrics-text;version=1.0.0")
    assert headers["content-type"].startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")
    headers, body = get(server, **{"Accept-Encoding": "gzip"})
    assert b"answer 42.0" in gzip.decompress(body)
    assert get(server, "/metrics?name[]=other")[1] == b""


@pytest.mark.parametrize("path", ["/", "/metrics/", "/metric", "/favicon.ico", "/%6detrics", "//metrics"])
def test_no_other_path_is_served(serve: Serve, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        get(serve(), path)
    with caught.value as refusal:
        assert (refusal.code, refusal.read()) == (404, b"Not Found\n")


@pytest.mark.parametrize("method", ["POST", "HEAD", "OPTIONS", "DELETE"])
def test_no_other_method_is_served(serve: Serve, method: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        get(serve(), method=method)
    with caught.value as refusal:
        assert (refusal.code, refusal.headers["allow"]) == (405, "GET")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/2.0\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n", 431),
        (b"x" * (MAX_HEAD_BYTES + 1), 431),
    ],
)
def test_an_invalid_request_is_refused(serve: Serve, sent: bytes, status: int) -> None:
    assert answer_to(serve(), sent).startswith(b"HTTP/1.1 %d " % status)


def test_a_head_may_come_in_pieces(serve: Serve) -> None:
    with connect(serve(), b"GET /met") as connection:
        connection.sendall(b"rics HTTP/1.0\r\n\r")
        connection.sendall(b"\n")
        assert rest_of(connection).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_head_has_a_limit_of_time_however_it_drips(serve: Serve) -> None:
    server = serve(head_seconds=0.1)
    with connect(server, b"GET /metrics HTTP/1.1\r\n") as connection:
        stopped = threading.Event()

        def drip() -> None:
            with contextlib.suppress(OSError):
                while not stopped.wait(0.01):
                    connection.sendall(b"X: y\r\n")

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            assert rest_of(connection) == b""
        finally:
            stopped.set()
            dripping.join()
    assert b"answer 42.0" in get(server)[1]


def test_a_later_connection_takes_the_place_of_the_slowest(serve: Serve) -> None:
    server = serve(head_seconds=SECONDS, request_seconds=2 * SECONDS)
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connect(server)) for _ in range(MAX_CONNECTIONS)]
        assert b"answer 42.0" in get(server)[1]
        assert rest_of(idle[0]) == b""
        for connection in idle[1:]:
            connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert b"answer 42.0" in rest_of(connection)


def test_those_that_do_not_read_their_answer_keep_nobody_out_for_long(
    serve: Serve, registry: CollectorRegistry
) -> None:
    Gauge("large", "x" * LARGE, registry=registry)
    server = serve(request_seconds=0.5)
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connect(server, b"GET /metrics HTTP/1.1\r\n\r\n")) for _ in range(MAX_CONNECTIONS)]
        for connection in slow:
            connection.recv(1)
        wait_until(partial(has_room, server), "room for another client")
        assert min(len(rest_of(connection)) for connection in slow) < LARGE  # its answer has no end


def has_room(server: MetricsServer) -> bool:
    try:
        return get(server, "/metrics?name[]=answer")[1].endswith(b"answer 42.0\n")
    except OSError:
        return False


def test_a_metric_that_fails_ends_one_request_alone(
    serve: Serve, registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> float:
        raise LookupError("a bug")

    Gauge("broken", "Fails.", registry=registry).set_function(fail)
    server = serve()
    with pytest.raises(urllib.error.HTTPError) as caught:
        get(server)
    with caught.value as refusal:
        assert (refusal.code, refusal.read()) == (500, b"Internal Server Error\n")
    assert "metrics not served" in caplog.messages
    assert b"answer 42.0" in get(server, "/metrics?name[]=answer")[1]


def test_metrics_are_served_on_ipv6_too(registry: CollectorRegistry) -> None:
    server = start_metrics_server(registry, "::1", 0)
    try:
        assert server.url == f"http://[::1]:{server.port}/metrics"
        with urllib.request.urlopen(server.url, timeout=SECONDS) as response:
            assert b"answer 42.0" in response.read()
    finally:
        server.stop()


def test_a_taken_metrics_port_is_reported_in_one_line_with_the_solution(registry: CollectorRegistry) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError) as caught:
            start_metrics_server(registry, "127.0.0.1", port)
    message = str(caught.value)
    assert f"port {port} is already in use" in message
    for way_out in ("--metrics-host", "GATEWAY_METRICS_HOST", "--metrics-port", "GATEWAY_METRICS_PORT"):
        assert way_out in message
    assert message.isprintable()


@pytest.mark.parametrize("host", ["192.0.2.1", "." * 70])
def test_an_address_of_another_machine_is_reported_in_one_line(registry: CollectorRegistry, host: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^cannot serve metrics on .*--metrics-host"):
        start_metrics_server(registry, host, 0)
