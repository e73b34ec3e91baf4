"""A log or audit log that cannot be written: a full disk, a dead reader, a pipe that nobody reads. Real processes."""

from __future__ import annotations

import contextlib
import resource
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from loadtest.cluster import Replica, wait_until
from loadtest.cluster.common import REPOSITORY, clean_environment, new_key, port_of, reserve_port
from tests import forkserver
from tests.integration.fleet import Fleet
from tests.integration.pipes import Pipe, unread
from tests.integration.raw import Answer, RawConnection, head_of, post, tool_call

pytestmark = pytest.mark.slow

ECHO = tool_call("echo", {"text": "hello"})
LINES = 700
"""The number of calls whose audit lines fill a pipe."""


@dataclass(frozen=True)
class At:
    """A process that is not part of a fleet."""

    url: str


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    pipe = Pipe(tmp_path / "audit")
    yield pipe
    pipe.lose_reader()


@contextlib.contextmanager
def replica_with(directory: Path, **settings: str) -> Iterator[Replica]:
    environ = {"GATEWAY_TOOLS": "tests.integration.tools", **settings}
    with Fleet(directory, environ, names=["r1"]) as fleet:
        yield fleet["r1"]


def status(replica: Replica, path: str) -> int:
    with RawConnection(replica) as connection:
        connection.socket.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        return connection.answer().status


def is_refused(answer: Answer) -> bool:
    return answer.error == (503, -31001)


def test_by_default_a_full_disk_costs_audit_lines_and_no_answer(tmp_path: Path) -> None:
    with replica_with(tmp_path, GATEWAY_AUDIT_LOG="/dev/full") as replica:
        for _ in range(20):
            assert post(replica, ECHO).status == 200
        wait_until(lambda: replica.metric("gateway_audit_lines_lost_total") == 20, "lost lines to be counted")
        assert status(replica, "/readyz") == 200
        assert replica.terminate() == 0


def test_by_default_a_dead_reader_costs_audit_lines_and_no_answer(tmp_path: Path, pipe: Pipe) -> None:
    with replica_with(tmp_path, GATEWAY_AUDIT_LOG=str(pipe.path)) as replica:
        pipe.lose_reader()
        for _ in range(20):
            assert post(replica, ECHO).status == 200
        wait_until(lambda: replica.metric("gateway_audit_lines_lost_total") == 20, "lost lines to be counted")
        pipe.gain_reader()
        assert post(replica, ECHO).status == 200
        wait_until(lambda: b'"audit":"leg"' in pipe.read(), "a line for the new reader")
        assert replica.terminate() == 0


def test_a_pipe_that_nobody_reads_stops_neither_calls_nor_health_checks_nor_the_end(tmp_path: Path, pipe: Pipe) -> None:
    with replica_with(tmp_path, GATEWAY_AUDIT_LOG=str(pipe.path)) as replica:
        pipe.fill()
        for _ in range(LINES):
            assert post(replica, ECHO).status == 200
        assert status(replica, "/healthz") == status(replica, "/readyz") == 200
        assert replica.terminate() == 0


def test_where_every_line_is_required_a_full_disk_refuses_calls_before_they_run(tmp_path: Path) -> None:
    log = tmp_path / "audit"
    with replica_with(tmp_path, GATEWAY_AUDIT_LOG=str(log), GATEWAY_AUDIT_LOG_REQUIRED="on") as replica:
        soft, hard = resource.prlimit(replica.pid, resource.RLIMIT_FSIZE)
        assert post(replica, ECHO).status == 200
        wait_until(lambda: log.exists() and log.read_bytes().count(b"\n") == 1, "the first line")
        # Its own log is a file too, but only the audit log is at its size limit.
        with log.open("ab") as junk:
            junk.write(b"x" * (1 << 20) + b"\n")
        resource.prlimit(replica.pid, resource.RLIMIT_FSIZE, (1 << 20, hard))
        earned = post(replica, ECHO)
        assert earned.status == 200  # not noticed yet
        wait_until(lambda: status(replica, "/readyz") == 503, "the replica to say that it is not ready")
        before = replica.metric("gateway_legs_total")
        assert is_refused(post(replica, ECHO))
        assert replica.metric("gateway_legs_total") == before
        assert replica.metric("gateway_requests_refused_total", reason="audit_log_down") == 1
        assert status(replica, "/healthz") == 200
        resource.prlimit(replica.pid, resource.RLIMIT_FSIZE, (soft, hard))
        wait_until(lambda: status(replica, "/readyz") == 200, "the replica to be ready again")
        assert post(replica, ECHO).status == 200
        assert replica.metric("gateway_audit_lines_lost_total") == 0
        assert replica.terminate() == 0
    assert log.read_bytes().count(b'"audit":"leg"') == 3  # the refused call is recorded as refused
    assert log.read_bytes().count(b'"audit":"refused"') == 1


def test_where_every_line_is_required_an_unread_pipe_refuses_calls_until_it_is_read(tmp_path: Path, pipe: Pipe) -> None:
    settings = {"GATEWAY_AUDIT_LOG": str(pipe.path), "GATEWAY_AUDIT_LOG_REQUIRED": "on"}
    with replica_with(tmp_path, **settings) as replica:
        pipe.fill()
        assert post(replica, ECHO).status == 200
        wait_until(lambda: status(replica, "/readyz") == 503, "the replica to say that it is not ready")
        assert is_refused(post(replica, ECHO))
        written = pipe.read()
        wait_until(lambda: status(replica, "/readyz") == 200, "the replica to be ready again")
        assert post(replica, ECHO).status == 200
        assert replica.terminate() == 0
    assert (written + pipe.read()).count(b'"audit":"leg"') == 2


def test_a_process_whose_log_nobody_reads_serves_and_stops(tmp_path: Path) -> None:
    environ = {
        "GATEWAY_TOOLS": "tests.integration.tools",
        "GATEWAY_AUDIENCE": "tests",
        "GATEWAY_AUTH": "none",
        "GATEWAY_SEAL_KEYS": new_key(),
        "GATEWAY_DRAIN_NOTICE_SECONDS": "0",
        "GATEWAY_METRICS_PORT": "off",
    }
    with reserve_port() as listener, unread() as log:
        command = [sys.executable, "-m", "gateway", "serve", "--fd", str(listener.fileno())]
        process = forkserver.start(
            command, cwd=REPOSITORY, env=clean_environment(environ), pass_fds=[listener.fileno()], stderr=log
        )
        listener.listen()
        try:
            served = At(f"http://127.0.0.1:{port_of(listener)}/mcp")
            for _ in range(20):
                assert post(served, ECHO).status == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()


def test_calls_that_a_forced_exit_cuts_off_have_their_audit_lines(tmp_path: Path) -> None:
    audit, started = tmp_path / "lines", [tmp_path / f"started{number}" for number in range(8)]
    with (
        replica_with(tmp_path, GATEWAY_AUDIT_LOG=str(audit), GATEWAY_DRAIN_SECONDS="0.1") as replica,
        contextlib.ExitStack() as connections,
    ):
        for file in started:
            held = connections.enter_context(RawConnection(replica))
            message = tool_call("hold", {"started": str(file), "release": str(tmp_path / "never")})
            body = msgspec.json.encode(message)
            held.head([*head_of(message), ("content-length", str(len(body)))])
            held.socket.sendall(body)
        wait_until(lambda: all(file.exists() for file in started), "the calls to run")
        assert replica.terminate() == 1
    assert audit.read_bytes().count(b'"target":"hold"') == len(started)
