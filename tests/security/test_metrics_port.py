"""A client of the metrics port can use up next to nothing of a process."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gateway.observability.metrics_server import MAX_CONNECTIONS
from loadtest.cluster import Replica
from tests.integration.fleet import Fleet

HALF_OPEN = 400


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    with Fleet(tmp_path, {"GATEWAY_TOOLS": "tests.security.served"}, names=("r1",)) as fleet:
        yield fleet["r1"]


def taken(replica: Replica) -> tuple[int, int]:
    """Return how many threads and descriptors a replica has."""
    process = Path(f"/proc/{replica.pid}")
    return len(list((process / "task").iterdir())), len(list((process / "fd").iterdir()))


def test_half_open_connections_take_hardly_anything_and_metrics_are_served_meanwhile(replica: Replica) -> None:
    url = urlsplit(replica.metrics_url)
    assert replica.metric("gateway_draining") == 0
    threads, descriptors = taken(replica)
    with contextlib.ExitStack() as stack:
        for _ in range(HALF_OPEN):
            connection = stack.enter_context(socket.create_connection((url.hostname, url.port), timeout=20))
            with contextlib.suppress(ConnectionError):  # closed to make room for a later one
                connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: ")
        assert replica.metric("gateway_draining") == 0
        more_threads, more_descriptors = taken(replica)
        assert more_threads - threads <= MAX_CONNECTIONS
        assert more_descriptors - descriptors <= MAX_CONNECTIONS
    assert replica.metric("gateway_draining") == 0
