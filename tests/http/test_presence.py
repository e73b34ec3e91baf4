"""The system knows whether a client is there: one that is gone acknowledges nothing, one that reads nothing does."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

from gateway.http.presence import Presence
from loadtest.cluster import wait_until
from tests.integration.lost import reappear, vanish

STEP_SECONDS = 0.05
SILENT_SECONDS = 0.4
LONG_SECONDS = 60.0
"""Longer than this test takes: whatever was acknowledged in it was so since then."""
LARGE = b"x" * (1 << 16)


class Transport(asyncio.Transport):
    """A transport of a socket, or of none."""

    def __init__(self, connection: socket.socket | None) -> None:
        super().__init__({} if connection is None else {"socket": connection})


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A client that takes little at a time, and our end of its connection."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        client = stack.enter_context(socket.socket())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(listening.getsockname())
        ours, _ = listening.accept()
        yield client, stack.enter_context(ours)


def look_for_long(presence: Presence) -> list[float | None]:
    """Look until a client counts as silent for long, or would if it were."""
    seen: list[float | None] = []
    until = time.monotonic() + 3 * SILENT_SECONDS
    while time.monotonic() < until and (not seen or (seen[-1] or 0) < SILENT_SECONDS):
        time.sleep(STEP_SECONDS)  # the system's own clock is looked at
        seen.append(presence.look(STEP_SECONDS))
    return seen


def test_a_client_that_is_gone_is_silent_for_longer_and_longer(pair: tuple[socket.socket, socket.socket]) -> None:
    client, ours = pair
    presence = Presence(Transport(ours))
    assert presence.look(STEP_SECONDS) is None
    vanish(client)
    assert presence.look(STEP_SECONDS) is None, "nothing was sent that it could acknowledge"
    ours.sendall(b":\n\n")
    seen = look_for_long(presence)
    assert seen[-1] is not None
    assert seen[-1] >= SILENT_SECONDS
    assert seen == sorted(silent for silent in seen if silent is not None)


def test_a_client_that_has_acknowledged_something_lately_is_there(pair: tuple[socket.socket, socket.socket]) -> None:
    client, ours = pair
    client.settimeout(20)
    presence = Presence(Transport(ours))
    vanish(client)
    ours.sendall(b"1")
    assert (look_for_long(presence)[-1] or 0) >= SILENT_SECONDS
    reappear(client)
    assert client.recv(1) == b"1"
    wait_until(lambda: Presence(Transport(ours)).look(STEP_SECONDS) is None, "what was sent to be acknowledged")
    vanish(client)
    ours.sendall(b"2")
    assert presence.look(LONG_SECONDS) == 0.0


def test_a_client_that_reads_nothing_is_there(pair: tuple[socket.socket, socket.socket]) -> None:
    _, ours = pair
    ours.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            ours.send(LARGE)
    assert all((silent or 0) < SILENT_SECONDS for silent in look_for_long(Presence(Transport(ours))))


def test_nothing_is_known_of_a_connection_that_is_closed_or_is_none(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours = pair[1]
    ours.close()
    near, far = socket.socketpair()
    with near, far:
        near.sendall(b"x")
        for connection in (ours, near, None):
            assert Presence(Transport(connection)).look(1.0) is None
