"""Clients that request much and read nothing, over real sockets."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from loadtest.cluster import wait_until
from tests.integration.fleet import Fleet
from tests.integration.raw import RawConnection, head_of, post, tool_call

pytestmark = pytest.mark.slow

READERS, ANSWER_BYTES, MAX_UNREAD_BYTES = 40, 4 << 20, 16 << 20
ECHO = tool_call("echo", {"text": "hello"})


def test_answers_that_nobody_reads_take_no_more_memory_than_they_may(tmp_path: Path) -> None:
    large = msgspec.json.encode(tool_call("echo", {"text": "x" * ANSWER_BYTES}))
    environ = {
        "GATEWAY_TOOLS": "tests.integration.tools",
        "GATEWAY_MAX_BODY_BYTES": str(2 * ANSWER_BYTES),
        "GATEWAY_MAX_UNREAD_BYTES": str(MAX_UNREAD_BYTES),
        "GATEWAY_UNREAD_SECONDS": "3600",
    }
    with ExitStack() as stack:
        (replica,) = stack.enter_context(Fleet(tmp_path, environ, names=["r1"])).replicas
        for _ in range(READERS):
            connection = stack.enter_context(RawConnection(replica))
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.head([*head_of(tool_call("echo", {})), ("content-length", str(len(large)))])
            connection.socket.sendall(large)
            # Its answer begins before the next request: more bodies at once than one caller may have would be refused.
            assert connection.socket.recv(1, socket.MSG_PEEK) == b"H"
        cut_off = READERS - MAX_UNREAD_BYTES // ANSWER_BYTES
        wait_until(
            lambda: replica.metric("gateway_requests_refused_total", reason="slow_reader") == cut_off + 1,
            "slow readers to be cut off",
        )
        assert post(replica, ECHO).status == 200
