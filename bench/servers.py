"""The programs under test as processes: started on one core, watched, stopped.

Servers run alone on the server core; the caller keeps the other core for the load.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

from bench.peers.envoy.config import config as envoy_config
from gateway.auth.tokens import mint
from gateway.ensured import ensured

TOP = Path(__file__).resolve().parent.parent
START_SECONDS = 30.0
STOP_SECONDS = 10.0
REDIS_PROGRAMS = ("redis-server", "valkey-server")
NEVER_OVERLOADED = {"GATEWAY_MAX_INFLIGHT": "1000"}
"""For a load that waits for answers, so that other programs on this machine do not look like overload."""
WORKING = b"working"
"""The message that our worker logs as soon as it claims tasks."""

CPU_CLOCK_OF_PROCESS = 2
"""The kernel's name for the CPU clock of a whole process, in the lowest three bits of a clock id."""


class ServerError(Exception):
    """A server does not start. The message names it and shows the end of its output."""


@dataclass(frozen=True, slots=True)
class Cores:
    """Which core the servers get and which one the load gets."""

    server: int
    load: int

    @classmethod
    def choose(cls) -> Cores:
        """Return the first and the last core this process may use.

        Raises:
            ServerError: there is only one.
        """
        allowed = sorted(os.sched_getaffinity(0))
        if len(allowed) < 2:
            raise ServerError("the benchmark needs two cores: one for the server, one for the load")
        return cls(server=allowed[0], load=allowed[-1])


@dataclass(frozen=True, slots=True)
class Program:
    """A running process."""

    name: str
    process: subprocess.Popen[bytes]
    output: IO[bytes] = field(repr=False)

    def cpu_seconds(self) -> float:
        """Return the CPU time of all threads of the process so far, including ended ones (clock_getcpuclockid(3))."""
        return time.clock_gettime(~self.process.pid << 3 | CPU_CLOCK_OF_PROCESS)

    def resident_mib(self) -> float:
        """Return the resident memory of the process in MiB."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def printed(self) -> bytes:
        """Return the output of the process so far."""
        self.output.seek(0)
        return self.output.read()

    def last_output(self) -> str:
        """Return the end of the process's output."""
        return self.printed()[-3000:].decode(errors="replace").strip()


@dataclass(frozen=True, slots=True)
class Server(Program):
    """A running HTTP server.

    Attributes:
        port: where it listens, on 127.0.0.1.
        token: a bearer token that it accepts, None if it needs none.
        environment: the environment of our server, with the secret that signs its tokens.
    """

    port: int
    token: str | None = field(default=None, repr=False)
    environment: Mapping[str, str] | None = field(default=None, repr=False)

    def tokens(self, count: int) -> list[str | None]:
        """Return bearer tokens that it accepts, each of a different user, or None where it needs none."""
        if self.environment is None:
            return [None] * count
        return [token_for(f"user-{number:04d}", self.environment) for number in range(count)]


@dataclass(frozen=True, slots=True)
class Redis(Program):
    """A running Redis server that writes nothing to disk."""

    port: int

    @property
    def url(self) -> str:
        """Return the URL for clients."""
        return f"redis://127.0.0.1:{self.port}/0"

    def ask(self, *command: str) -> str:
        """Run a command, and return its reply or error text, without the type and length before it."""
        request = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in map(str.encode, command))
        with socket.create_connection(("127.0.0.1", self.port)) as link, link.makefile("rb") as replies:
            link.sendall(b"*%d\r\n%s" % (len(command), request))
            head = replies.readline().rstrip()
            body = replies.read(int(head[1:])) if head.startswith(b"$") else head[1:]
        return body.decode()

    def used_memory(self) -> int:
        """Return the memory in bytes that it uses in total."""
        facts = dict(line.split(":", 1) for line in self.ask("INFO", "memory").splitlines() if ":" in line)
        return int(facts["used_memory"])


@contextmanager
def raw_asgi(cores: Cores) -> Iterator[Server]:
    """Run the raw ASGI echo, in our own virtual environment."""
    port = free_port()
    with _serving("raw ASGI", port, [sys.executable, "-m", "bench.peers.raw", str(port)], cores) as server:
        yield server


@contextmanager
def sdk(cores: Cores, *, answers: Literal["json", "sse"] = "json", more_tools: int = 0) -> Iterator[Server]:
    """Run the `mcp` SDK's server, in its own virtual environment."""
    port = free_port()
    command = [_python_of("sdk"), "-m", "bench.peers.sdk.server", str(port), answers, str(more_tools)]
    with _serving("mcp SDK", port, command, cores) as server:
        yield server


@contextmanager
def fastapi(cores: Cores) -> Iterator[Server]:
    """Run the FastAPI endpoint, in our own virtual environment."""
    port = free_port()
    with _serving("FastAPI", port, [sys.executable, "-m", "bench.peers.web", str(port)], cores) as server:
        yield server


@contextmanager
def fastmcp_calls(cores: Cores) -> Iterator[Server]:
    """Run fastmcp's server without tasks, in its own virtual environment."""
    port = free_port()
    command = [_python_of("fastmcp-tasks"), "-m", "bench.peers.fastmcp.calls", str(port)]
    with _serving("fastmcp", port, command, cores) as server:
        yield server


@contextmanager
def fastmcp(cores: Cores, redis: Redis) -> Iterator[Server]:
    """Run fastmcp's server with tasks on Redis, in its own virtual environment; its worker is part of the process."""
    port = free_port()
    command = [_python_of("fastmcp-tasks"), "-m", "bench.peers.fastmcp.server", str(port), redis.url]
    with _serving("fastmcp", port, command, cores) as server:
        yield server


@contextmanager
def ours(cores: Cores, environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Run one replica of ours as in production: HS256 identity, sealed state, metrics port, log."""
    environment = environment or production(**NEVER_OVERLOADED)
    port, metrics_port = free_port(), free_port()
    command = _gateway("serve", "--port", str(port), "--metrics-port", str(metrics_port))
    with _serving("ours", port, command, cores, environment=environment) as server:
        yield server


@contextmanager
def upstream(cores: Cores, tools: int = 1) -> Iterator[Server]:
    """Run a cheap MCP server with so many tools, on the core of the load, to stand behind a gateway."""
    port = free_port()
    command = [sys.executable, "-m", "bench.peers.upstream", str(port), str(tools)]
    with _serving("upstream", port, command, Cores(server=cores.load, load=cores.load)) as server:
        yield server


@contextmanager
def hostile(cores: Cores, server: Server, prefix: str) -> Iterator[Program]:
    """Run a caller whose calls to an upstream all go wrong, on the core of the load."""
    token = token_for("hostile", ensured(server.environment, "it is ours"))
    command = [sys.executable, "-m", "bench.peers.hostile", str(server.port), prefix, token]
    with _running("hostile caller", command, cores.load) as program:
        yield program
        if program.process.poll() is not None:
            raise ServerError(f"{program.name} ended: {program.last_output()}")


@contextmanager
def fastmcp_proxy(cores: Cores, upstream: Server) -> Iterator[Server]:
    """Run fastmcp's proxy in front of a server, in its own virtual environment."""
    port = free_port()
    url = f"http://127.0.0.1:{upstream.port}/mcp"
    command = [_python_of("fastmcp-tasks"), "-m", "bench.peers.fastmcp.proxy", str(port), url]
    with _serving("fastmcp's proxy", port, command, cores) as server:
        yield server


@contextmanager
def envoy(cores: Cores, upstream: Server) -> Iterator[Server]:
    """Run Envoy with `mcp_router` in front of a server, with one thread for requests."""
    port = free_port()
    program = str(Path(_python_of("envoy")).with_name("envoy"))
    options = ["--concurrency", "1", "--log-level", "error", "--base-id", str(port), "--disable-hot-restart"]
    command = [program, "--config-yaml", envoy_config(port, upstream.port), *options]
    with _serving("Envoy", port, command, cores) as server:
        yield server


@contextmanager
def worker(cores: Cores, environment: Mapping[str, str]) -> Iterator[Program]:
    """Run a worker of ours with the environment of its replica; it claims tasks when this yields."""
    with _running("our worker", _gateway("worker"), cores.server, environment=environment) as program:
        _wait(program, lambda: WORKING in program.printed())
        yield program


@contextmanager
def redis_server(core: int | None) -> Iterator[Redis]:
    """Run the system's Redis server, in its own directory, on one core or on any.

    Raises:
        ServerError: the system has none.
    """
    found = next(filter(None, map(shutil.which, REDIS_PROGRAMS)), None)
    if found is None:
        raise ServerError("redis-server is missing: run the benchmark with `make bench`, which installs it")
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        port = free_port()
        options = {"bind": "127.0.0.1", "port": str(port), "dir": directory, "save": "", "appendonly": "no"}
        command = [found, *(part for name, value in options.items() for part in (f"--{name}", value))]
        with _running("Redis", command, core) as program:
            redis = Redis(program.name, program.process, program.output, port)
            _wait(program, lambda: _is_open(port) and redis.ask("PING") == "PONG")
            yield redis


def production(**settings: str) -> dict[str, str]:
    """Return the environment of our processes as in production, with keys and secrets of this run, and `settings`.

    Identity, limits, metrics and the audit log are on; log and audit log go to the process's output, a file.

    Raises:
        ServerError: our command line does not work.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")} | {
        "GATEWAY_AUDIENCE": "bench",
        "GATEWAY_AUTH": "jwt",
        "GATEWAY_JWT_SECRET": secrets.token_urlsafe(48),
        "GATEWAY_RATE_LIMIT": "1000000/s",
        "GATEWAY_TOOLS": "bench.tools",
    }
    environment["GATEWAY_SEAL_KEYS"] = _output_of(_gateway("keys", "new"), environment)
    return environment | settings


def token_for(subject: str, environment: Mapping[str, str]) -> str:
    """Return a bearer token that our processes with this environment accept."""
    return mint(environment["GATEWAY_JWT_SECRET"], subject, environment["GATEWAY_AUDIENCE"])


def free_port() -> int:
    """Return a TCP port on 127.0.0.1 that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _gateway(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "gateway", *arguments]


def _python_of(peer: str) -> str:
    python = TOP / ".venvs" / peer / "bin" / "python"
    if not python.exists():
        raise ServerError(
            f"the virtual environment {peer} is missing: run the benchmark with `make bench`, which makes it"
        )
    return str(python)


def _output_of(command: Sequence[str], environment: Mapping[str, str]) -> str:
    done = subprocess.run(command, env=environment, cwd=TOP, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServerError(f"`{' '.join(command[1:])}` failed: {(done.stderr or done.stdout).strip()[-3000:]}")
    return done.stdout.strip()


@contextmanager
def _serving(
    name: str,
    port: int,
    command: Sequence[str],
    cores: Cores,
    *,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    with _running(name, command, cores.server, environment=environment) as program:
        _wait(program, lambda: _answers(port))
        token = None if environment is None else token_for("bench", environment)
        yield Server(program.name, program.process, program.output, port, token, environment)


@contextmanager
def _running(
    name: str, command: Sequence[str], core: int | None, *, environment: Mapping[str, str] | None = None
) -> Iterator[Program]:
    with ExitStack() as stack:
        output = stack.enter_context(tempfile.TemporaryFile("a+b"))  # reading it never moves where the child writes
        before = os.sched_getaffinity(0)
        # A child inherits it, with every thread it will ever start.
        os.sched_setaffinity(0, before if core is None else {core})
        try:
            process = subprocess.Popen(
                command, env=environment, cwd=TOP, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        finally:
            os.sched_setaffinity(0, before)
        stack.callback(_stop, process)
        yield Program(name, process, output)


def _wait(program: Program, is_ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if program.process.poll() is not None:
            raise ServerError(
                f"{program.name} ended with exit code {program.process.returncode}: {program.last_output()}"
            )
        if is_ready():
            return
        time.sleep(0.05)
    raise ServerError(f"{program.name} was not ready within {START_SECONDS:g} seconds: {program.last_output()}")


def _answers(port: int) -> bool:
    """Return whether a server answers HTTP on `port`, with any status; one that only listens may still be starting."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as probe:
            probe.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            return probe.recv(5) == b"HTTP/"
    except OSError:
        return False


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
