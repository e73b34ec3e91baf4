"""The servers under test as processes: started on one core, watched, stopped.

Every server runs alone on the server core; whoever calls this keeps the other core for the load.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

TOP = Path(__file__).resolve().parent.parent
START_SECONDS = 30.0
STOP_SECONDS = 10.0
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class ServerError(Exception):
    """A server does not start. The message says which, and shows the end of what it printed."""


@dataclass(frozen=True, slots=True)
class Cores:
    """Which core the servers get and which one the load gets."""

    server: int
    load: int

    @classmethod
    def choose(cls) -> Cores:
        """The first and the last core this process may use.

        Raises:
            ServerError: there is only one.
        """
        allowed = sorted(os.sched_getaffinity(0))
        if len(allowed) < 2:
            raise ServerError("the benchmark needs two cores: one for the server, one for the load")
        return cls(server=allowed[0], load=allowed[-1])


@dataclass(frozen=True, slots=True)
class Server:
    """A running server. `token` is the bearer token that it wants, if any."""

    name: str
    port: int
    process: subprocess.Popen[bytes]
    output: IO[bytes] = field(repr=False)
    token: str | None = field(default=None, repr=False)

    def cpu_seconds(self) -> float:
        """CPU time of the process so far, all threads, user and system (proc(5), /proc/PID/stat)."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        fields = stat.rpartition(")")[2].split()  # the name before it may contain blanks
        return (int(fields[11]) + int(fields[12])) / TICKS_A_SECOND

    def resident_mib(self) -> float:
        """Resident memory of the process in MiB."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def last_output(self) -> str:
        """The end of what the server printed."""
        self.output.seek(0)
        return self.output.read()[-3000:].decode(errors="replace").strip()


@contextmanager
def raw_asgi(cores: Cores, output: IO[bytes]) -> Iterator[Server]:
    """The raw ASGI echo, in our own virtual environment."""
    port = free_port()
    with _running("raw ASGI", port, [sys.executable, "-m", "bench.peers.raw", str(port)], cores, output) as server:
        yield server


@contextmanager
def sdk(cores: Cores, output: IO[bytes]) -> Iterator[Server]:
    """The `mcp` SDK's server, in its own virtual environment."""
    python = TOP / ".venvs" / "sdk" / "bin" / "python"
    if not python.exists():
        raise ServerError("the SDK's virtual environment is missing: start the benchmark with `make bench`")
    port = free_port()
    with _running("mcp SDK", port, [str(python), "bench/peers/sdk/server.py", str(port)], cores, output) as server:
        yield server


@contextmanager
def ours(cores: Cores, output: IO[bytes]) -> Iterator[Server]:
    """One replica of ours as in production: HS256 identity, sealed state, metrics port, log."""
    port, metrics_port = free_port(), free_port()
    gateway = [sys.executable, "-m", "gateway"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")} | {
        "GATEWAY_AUDIENCE": "bench",
        "GATEWAY_AUTH": "jwt",
        "GATEWAY_JWT_SECRET": secrets.token_urlsafe(48),
        "GATEWAY_TOOLS": "bench.tools",
    }
    environment["GATEWAY_SEAL_KEYS"] = _output_of([*gateway, "keys", "new"], environment)
    token = _output_of([*gateway, "token", "--sub", "bench"], environment)
    command = [*gateway, "serve", "--port", str(port), "--metrics-port", str(metrics_port)]
    with _running("ours", port, command, cores, output, environment=environment, token=token) as server:
        yield server


def free_port() -> int:
    """A TCP port on 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _output_of(command: Sequence[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, env=environment, cwd=TOP, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServerError(f"`{' '.join(command[1:])}` failed: {(done.stderr or done.stdout).strip()[-3000:]}")
    return done.stdout.strip()


@contextmanager
def _running(
    name: str,
    port: int,
    command: Sequence[str],
    cores: Cores,
    output: IO[bytes],
    *,
    environment: dict[str, str] | None = None,
    token: str | None = None,
) -> Iterator[Server]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cores.server})  # a child inherits it, with every thread it will ever start
    try:
        process = subprocess.Popen(
            command, env=environment, cwd=TOP, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    finally:
        os.sched_setaffinity(0, before)
    server = Server(name, port, process, output, token)
    try:
        _wait_until_it_answers(server)
        yield server
    finally:
        _stop(process)


def _wait_until_it_answers(server: Server) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            raise ServerError(f"{server.name} ended with exit code {server.process.returncode}: {server.last_output()}")
        if _answers(server.port):
            return
        time.sleep(0.05)
    raise ServerError(f"{server.name} does not answer after {START_SECONDS:g} seconds: {server.last_output()}")


def _answers(port: int) -> bool:
    """Whether a server answers HTTP on `port`, whatever it says; one that only listens may not have started yet."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as probe:
            probe.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            return probe.recv(5) == b"HTTP/"
    except OSError:
        return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
