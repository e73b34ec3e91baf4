"""SIGHUP reads files again, unless it means that the terminal was closed. Real processes under load."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import redis

from gateway.cli.main import main
from loadtest.cluster import Replica, new_key, wait_until
from loadtest.cluster.common import HOST, REPOSITORY, clean_environment
from loadtest.cluster.processes import GatewayProcess, Worker
from tests.identity import ISSUER, SigningKey, key_set
from tests.integration.callers import ECHO, calling
from tests.integration.fleet import Fleet
from tests.integration.raw import post
from tests.storage.servers import Server
from tests.workers.conftest import durable_server

pytestmark = pytest.mark.slow

ROUNDS = 50
SECONDS = 5.0
"""Measured are fractions of a second; two busy cores take longer."""
TOOLS = {"GATEWAY_TOOLS": "tests.integration.tools"}
HARMLESS = (signal.SIGUSR1, signal.SIGUSR2)

WITH_TERMINAL = (
    "import fcntl, os, signal, sys, termios; signal.signal(signal.SIGHUP, signal.{handler}); "
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)


def replace(path: Path, content: bytes) -> None:
    """Replace a file as editors do."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.rename(path)


class Files:
    """The files that replicas and workers read again, with another content in each round, and the audit log."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.stays = SigningKey("stays")
        self._key = new_key()
        self._seal_keys, self._jwks, self._upstreams = folder / "keys", folder / "jwks", folder / "upstreams.json"
        self._redis_url, self._audit = folder / "redis-url", folder / "audit.log"
        self._server = server
        self.store = redis.Redis(unix_socket_path=str(server.socket))
        self.change(0)
        self.environ = {
            **TOOLS,
            "GATEWAY_SEAL_KEYS": "",
            "GATEWAY_SEAL_KEYS_FILE": str(self._seal_keys),
            "GATEWAY_AUTH": "jwt",
            "GATEWAY_JWT_ISSUER": ISSUER,
            "GATEWAY_JWT_AUDIENCE": "here",
            "GATEWAY_JWKS_FILE": str(self._jwks),
            "GATEWAY_UPSTREAMS": str(self._upstreams),
            "GATEWAY_REDIS_URL_FILE": str(self._redis_url),
            "GATEWAY_AUDIT_LOG": str(self._audit),
            "GATEWAY_MAX_INFLIGHT": "100",
        }

    def change(self, number: int) -> None:
        self.store.execute_command("ACL", "SETUSER", f"user{number}", "on", f">secret{number}", "~*", "&*", "+@all")  # type: ignore[no-untyped-call]
        replace(self._redis_url, f"unix://user{number}:secret{number}@{self._server.socket}".encode())
        replace(self._seal_keys, f"{self._key},{new_key()}".encode())
        replace(self._jwks, key_set(self.stays, SigningKey(f"key{number}")))
        # A program on this machine is not served, and the log says so.
        replace(self._upstreams, json.dumps({"mcpServers": {f"u{number}": {"command": "true"}}}).encode())
        if self._audit.exists():
            self._audit.rename(self._audit.with_suffix(f".{number}"))

    def in_effect(self, process: GatewayProcess, number: int) -> Iterator[str]:
        """Yield which files of a round a process uses."""
        lines = process.log_path.read_text()
        if lines.count("seal keys replaced") == number:
            yield "seal keys"
        if isinstance(process, Worker) or f"key{number}" in lines:
            yield "JWKS"
        if f'"upstream": "u{number}"' in lines:
            yield "upstreams"
        if lines.count("task store has another URL") == number:
            yield "Redis URL"
        if str(self._audit) in open_files(process):
            yield "audit log"

    def users(self) -> Counter[str]:
        """Return how many connections each user of Redis has, besides that of this test."""
        return Counter(str(client["user"]) for client in self.store.client_list() if client["user"] != "default")


FILES = {"seal keys", "JWKS", "upstreams", "Redis URL", "audit log"}


def open_files(process: GatewayProcess) -> list[str]:
    found = []
    for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            found.append(str(descriptor.readlink()))
    return found


def descriptors(files: Files, processes: Sequence[GatewayProcess]) -> int:
    """Return how many descriptors all processes have, except for Redis, to which each connects as often as it needs."""
    return sum(len(open_files(process)) for process in processes) - files.users().total()


def slowest(files: Files, processes: Sequence[GatewayProcess], number: int) -> dict[str, float]:
    """Send SIGHUP, and return how long each file took until the last process used it."""
    for process in processes:
        process.signal(signal.SIGHUP)
    began, took = time.monotonic(), dict[str, float]()

    def are_all_in_effect() -> bool:
        used = set.intersection(*(set(files.in_effect(process, number)) for process in processes))
        for name in used.difference(took):
            took[name] = time.monotonic() - began
        return used == FILES

    wait_until(are_all_in_effect, "the changed files")
    return took


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    with durable_server() as server:
        yield Files(tmp_path, server)


@pytest.fixture
def fleet(files: Files, tmp_path: Path) -> Iterator[tuple[Replica, Replica, Worker]]:
    """Two replicas and a worker."""
    with ExitStack() as stack:
        fleet = stack.enter_context(Fleet(tmp_path, files.environ))
        worker = Worker("w1", fleet.environ, tmp_path / "w1.log")
        stack.callback(worker.stop)
        worker.start()
        worker.wait_ready()
        yield fleet["r1"], fleet["r2"], worker


def test_fifty_hangups_under_load_apply_each_changed_file_and_lose_no_call(
    files: Files, fleet: tuple[Replica, Replica, Worker]
) -> None:
    first, second, _ = fleet
    token = files.stays.token(exp=int(time.time()) + 6000)
    took: dict[str, float] = {}
    with calling(first, threads=1, token=token) as callers, calling(second, threads=1, token=token) as others:
        callers.wait_for(20)
        others.wait_for(20)
        before = descriptors(files, fleet)
        for number in range(1, ROUNDS + 1):
            files.change(number)
            for name, seconds in slowest(files, fleet, number).items():
                took[name] = max(seconds, took.get(name, 0.0))
        last = f"user{ROUNDS}"
        wait_until(lambda: set(files.users()) == {last}, "all connections to be of the last user")
        assert files.users()[last] >= len(fleet)
        callers.wait_for(20)
        wait_until(lambda: descriptors(files, fleet) <= before, "no more descriptors than before")
    assert max(took.values()) < SECONDS, took
    assert callers.broken == others.broken == []
    assert set(callers.statuses) == set(others.statuses) == {200}
    for process in fleet:
        assert not process.logged("task store is not available")
        assert process.terminate() == 0
        assert "Traceback" not in process.log_text()


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    """What listens where systemd would."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(60)
        yield listener


@pytest.fixture(params=["replica", "worker"])
def process(request: pytest.FixtureRequest, systemd: socket.socket, tmp_path: Path) -> Iterator[GatewayProcess]:
    environ = {**TOOLS, "NOTIFY_SOCKET": systemd.getsockname()}
    if request.param == "replica":
        with Fleet(tmp_path, environ, names=["r1"]) as fleet:
            yield fleet["r1"]
        return
    with durable_server() as redis:
        own = {"GATEWAY_AUDIENCE": "tests", "GATEWAY_SEAL_KEYS": new_key(), "GATEWAY_REDIS_URL": redis.url}
        worker = Worker("w1", environ | own, tmp_path / "w1.log")
        worker.start()
        worker.wait_ready()
        yield worker
        worker.stop()


def test_signals_that_mean_nothing_end_neither_replicas_nor_workers(process: GatewayProcess) -> None:
    for number in (*HARMLESS, signal.SIGHUP, *HARMLESS):
        process.signal(number)
    process.wait_for_log("files read again")
    assert process.alive
    assert process.terminate() == 0


def test_systemd_is_notified_of_each_state(process: GatewayProcess, systemd: socket.socket) -> None:
    assert systemd.recv(1000) == b"READY=1"
    process.signal(signal.SIGHUP)
    reloading, _, since = systemd.recv(1000).partition(b"\nMONOTONIC_USEC=")
    assert reloading == b"RELOADING=1"
    assert int(since) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    assert systemd.recv(1000) == b"READY=1"
    assert process.terminate() == 0
    assert systemd.recv(1000) == b"STOPPING=1"


Start = Callable[..., tuple["subprocess.Popen[bytes]", int]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start `gateway serve` in a new terminal, and return the process and the other end of the terminal."""
    running: list[subprocess.Popen[bytes]] = []

    def start(handler: str, before: Sequence[str] = ()) -> tuple[subprocess.Popen[bytes], int]:
        master, slave = os.openpty()
        environ = {
            **TOOLS,
            "GATEWAY_AUDIENCE": "tests",
            "GATEWAY_AUTH": "none",
            "GATEWAY_SEAL_KEYS": new_key(),
            "GATEWAY_METRICS_PORT": "off",
            "GATEWAY_DRAIN_NOTICE_SECONDS": "0",
        }
        command = [sys.executable, "-m", "gateway", "serve", "--host", HOST, "--port", "0"]
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-S", "-c", WITH_TERMINAL.format(handler=handler), *before, *command],
                cwd=REPOSITORY,
                env=clean_environment(environ),
                stdin=slave,
                stdout=slave,
                stderr=log,
                start_new_session=True,
            )
        os.close(slave)
        running.append(process)
        wait_until(lambda: "serving" in (tmp_path / "log").read_text(), "it to serve")
        return process, master

    yield start
    for process in running:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()


def test_a_closed_terminal_lets_a_replica_drain(start: Start, tmp_path: Path) -> None:
    process, terminal = start("SIG_DFL")
    process.send_signal(signal.SIGHUP)  # of `kill`: the terminal is still there
    wait_until(lambda: "files read again" in (tmp_path / "log").read_text(), "the files to be read again")
    os.close(terminal)
    assert process.wait(timeout=60) == 0
    assert "leaving signal=SIGHUP" in (tmp_path / "log").read_text()


def test_under_nohup_a_replica_outlives_its_terminal(start: Start, tmp_path: Path) -> None:
    process, terminal = start("SIG_IGN")
    os.close(terminal)
    wait_until(lambda: "files read again" in (tmp_path / "log").read_text(), "the signal of the closed terminal")
    assert process.poll() is None
    process.terminate()
    assert process.wait(timeout=60) == 0


def test_a_tool_that_handles_a_signal_itself_keeps_its_handler(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "import signal\nfrom pathlib import Path\nfrom tests.integration.tools import *\n"
        f"signal.signal(signal.SIGUSR1, lambda *_: Path({str(tmp_path / 'got')!r}).touch())\n"
    )
    with Fleet(tmp_path, {"GATEWAY_TOOLS": str(tmp_path / "own.py")}, names=["r1"]) as fleet:
        fleet["r1"].signal(signal.SIGUSR1)
        wait_until((tmp_path / "got").exists, "the handler of the tool")
        assert post(fleet["r1"], ECHO).status == 200


def test_a_command_sends_the_signal_to_the_processes_of_this_machine(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It sees only the process of this test, because others that run here belong to other tests."""
    process, terminal = start("SIG_IGN")
    other = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()", "gateway", "serve"], stdin=subprocess.PIPE
    )
    processes = tmp_path / "proc"
    processes.mkdir()
    for pid in (process.pid, other.pid):
        (processes / str(pid)).symlink_to(f"/proc/{pid}")
    monkeypatch.setattr("gateway.cli.reload.PROCESSES", processes)
    assert main(["reload"]) == 0
    assert capsys.readouterr().out == f"sent SIGHUP to {process.pid}\n"
    wait_until(lambda: "files read again" in (tmp_path / "log").read_text(), "the files to be read again")
    assert other.poll() is None, "a process that the signal would end does not get it"
    other.communicate()
    process.terminate()
    process.wait(timeout=60)
    os.close(terminal)
    assert main(["reload"]) == 1
