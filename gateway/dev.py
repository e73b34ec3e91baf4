"""`gateway dev`: several replicas behind one port, for trying things out.

The parent owns the port as a small front and one listening socket for each replica. A replica inherits its socket,
so one that is started anew takes over the connections that have been waiting meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.auth.bind import check_bind
from gateway.sealing.keyring import generate_entry
from gateway.settings import Settings
from gateway.web.front import Front
from gateway.web.listener import listen

LOOPBACK: Final = "127.0.0.1"
DEMO_TOOLS: Final = "gateway.demo"
AUDIENCE: Final = "dev"

EXIT_FAILED: Final = 1
EXIT_CONFIGURATION: Final = 2

_EARLY_DEATH_SECONDS: Final = 10.0
_MAX_EARLY_DEATHS: Final = 3
_BACKOFF_SECONDS: Final = 0.5
_READY_RETRY_SECONDS: Final = 0.1
_KILL_MARGIN_SECONDS: Final = 2.0
_LAST_WORDS_SECONDS: Final = 1.0
_CHUNK_BYTES: Final = 65536


def run(replicas: int, host: str, port: int, environ: Mapping[str, str] | None = None) -> int:
    """Run replicas until Ctrl-C or SIGTERM.

    Args:
        replicas: how many.
        host: the address to listen on.
        port: the port to listen on; 0 takes any free one.
        environ: the environment to start from; None is the process's own.

    Returns:
        The exit code: 0 after Ctrl-C or SIGTERM, 1 when a replica died again and again, 2 when a replica found
        its configuration wrong (it has said how).

    Raises:
        ConfigurationError: a setting is wrong, or the port is taken.
    """
    filled, made = fill_environment(os.environ if environ is None else environ)
    settings = Settings.load(filled)
    settings.check_serving()
    check_bind(settings.auth, host)
    for name in settings.unknown:
        say(f"{name} is not a setting and has no effect; see docs/settings.md")
    if made:
        say(f"made for this run, the same for all replicas: {', '.join(made)}")
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(listen(host, port))
        fleet = [
            _Replica(f"r{number}", sockets.enter_context(listen(LOOPBACK, 0)), metrics_port)
            for number, metrics_port in enumerate(_metrics_ports(settings.metrics_port, replicas), start=1)
        ]
        supervisor = _Supervisor(fleet, listener, filled, settings.drain_seconds)
        return asyncio.run(supervisor.run(_url(host, listener)))


WAYS_TO_VERIFY = ("GATEWAY_JWT_SECRET", "GATEWAY_JWT_SECRET_FILE", "GATEWAY_JWKS_URL", "GATEWAY_JWKS_FILE")


def fill_environment(environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Add what a first try should not have to set.

    Returns:
        The environment of the replicas, and what was made up, in words for people.
    """
    filled = dict(environ)
    made = []

    def make(name: str, value: str, words: str) -> None:
        filled[name] = value
        made.append(words)

    if not filled.get("GATEWAY_SEAL_KEYS") and not filled.get("GATEWAY_SEAL_KEYS_FILE"):
        make("GATEWAY_SEAL_KEYS", generate_entry(secrets.token_bytes), "a seal key")
    for name, value in (("GATEWAY_AUDIENCE", AUDIENCE), ("GATEWAY_TOOLS", DEMO_TOOLS)):
        if not filled.get(name):
            make(name, value, f"{name}={value}")
    # Somebody who gives a way to verify tokens wants it to be used.
    if not any(filled.get(name) for name in ("GATEWAY_AUTH", *WAYS_TO_VERIFY)):
        make("GATEWAY_AUTH", "none", "GATEWAY_AUTH=none")
    for name in ("GATEWAY_CONNECTION_CLOSE", "GATEWAY_STRICT_ASKS"):
        filled[name] = filled.get(name) or "on"
    filled["PYTHONUNBUFFERED"] = "1"
    return filled, made


def say(text: str) -> None:
    """Tell people what happens, one line at a time."""
    sys.stdout.write(f"gateway dev: {text}\n")
    sys.stdout.flush()


def _url(host: str, listener: socket.socket) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}/mcp"


def _metrics_ports(first: int | None, count: int) -> list[int | None]:
    """Choose a port for the metrics of each replica: consecutive ones where they are free, None where off."""
    if first is None:
        return [None] * count
    with contextlib.ExitStack() as probes:
        ports: list[int | None] = []
        for wanted in (first + index if first else 0 for index in range(count)):
            probe = _probe(wanted) or _probe(0)
            if probe is None:
                raise RuntimeError("the system has no free port left")
            port = probes.enter_context(probe).getsockname()[1]
            if wanted and port != wanted:
                say(f"port {wanted} is in use, so these metrics are on {port}")
            ports.append(port)
    return ports


def _probe(port: int) -> socket.socket | None:
    try:
        return socket.create_server((LOOPBACK, port))
    except (OSError, OverflowError):
        return None


@dataclass(slots=True)
class _Replica:
    """One replica over all its restarts."""

    name: str
    listener: socket.socket
    metrics_port: int | None
    early_deaths: int = 0
    process: asyncio.subprocess.Process | None = None

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.listener.getsockname()
        return host, port

    def command(self) -> list[str]:
        descriptor = str(self.listener.fileno())
        metrics = "off" if self.metrics_port is None else str(self.metrics_port)
        options = ["--fd", descriptor, "--replica-id", self.name, "--metrics-port", metrics]
        return [sys.executable, "-m", "gateway", "serve", *options]


@dataclass(slots=True)
class _Supervisor:
    """Keeps the replicas running until it is told to stop or has to give up."""

    fleet: list[_Replica]
    listener: socket.socket
    environ: Mapping[str, str]
    drain_seconds: float
    exit_code: int = 0
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    hurry: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, url: str) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._asked_to_stop)
        front = Front([replica.address for replica in self.fleet], self.listener)
        await front.start()
        ready = [asyncio.Event() for _ in self.fleet]
        keepers = [asyncio.create_task(self._keep(*pair)) for pair in zip(self.fleet, ready, strict=True)]
        greeter = asyncio.create_task(self._greet(ready, url))
        stopping = asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait([*keepers, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.stopping.set()
            front.stop_listening()
            greeter.cancel()
            failures = await asyncio.gather(*keepers, stopping, return_exceptions=True)
            await front.close()
        for failure in failures:
            if isinstance(failure, Exception):
                raise failure
        say("stopped")
        return self.exit_code

    def _asked_to_stop(self) -> None:
        if self.stopping.is_set():
            self.hurry.set()
        else:
            say("stopping; once more to stop at once")
            self.stopping.set()

    def _give_up(self, exit_code: int) -> None:
        if not self.stopping.is_set():
            self.exit_code = exit_code
            self.stopping.set()

    async def _greet(self, ready: list[asyncio.Event], url: str) -> None:
        for event in ready:
            await event.wait()
        say(f"ready on {url} (Ctrl-C stops)")

    async def _keep(self, replica: _Replica, ready: asyncio.Event) -> None:
        """Start a replica, and start it anew whenever it dies, until the supervisor stops."""
        while not self.stopping.is_set():
            started = asyncio.get_running_loop().time()
            exit_code = await self._run_once(replica, ready)
            if self.stopping.is_set():
                return
            say(f"{replica.name} {_cause_of_death(exit_code)}")
            if exit_code == EXIT_CONFIGURATION:
                self._give_up(EXIT_CONFIGURATION)
                return
            lived_seconds = asyncio.get_running_loop().time() - started
            replica.early_deaths = replica.early_deaths + 1 if lived_seconds < _EARLY_DEATH_SECONDS else 0
            if replica.early_deaths == _MAX_EARLY_DEATHS:
                say(f"{replica.name} died {_MAX_EARLY_DEATHS} times right after its start; giving up")
                self._give_up(EXIT_FAILED)
                return
            await self._pause(_BACKOFF_SECONDS * replica.early_deaths)

    async def _pause(self, seconds: float) -> None:
        """Wait, but not longer than the supervisor runs."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), seconds)

    async def _run_once(self, replica: _Replica, ready: asyncio.Event) -> int:
        """Run a replica's process to its end, and return its exit code (negative: the signal that killed it)."""
        process = await asyncio.create_subprocess_exec(
            *replica.command(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=self.environ,
            pass_fds=(replica.listener.fileno(),),
            process_group=0,  # Ctrl-C is for the parent alone, which then stops its children in order
        )
        output = asyncio.create_task(_pass_on(process, replica.name))
        watch = asyncio.create_task(self._announce(replica, process.pid, ready))
        stop = asyncio.create_task(self._stop_when_asked(process))
        try:
            return await process.wait()
        finally:
            watch.cancel()
            stop.cancel()
            if process.returncode is None:
                process.kill()
            # What the replica started itself may still hold the pipe open.
            await asyncio.wait([watch, stop, output], timeout=_LAST_WORDS_SECONDS)
            output.cancel()

    async def _announce(self, replica: _Replica, pid: int, ready: asyncio.Event) -> None:
        while not await _is_ready(replica.address):
            await self._pause(_READY_RETRY_SECONDS)
        metrics = "" if replica.metrics_port is None else f", metrics http://{LOOPBACK}:{replica.metrics_port}/metrics"
        say(f"{replica.name} is ready: pid {pid}{metrics}")
        ready.set()

    async def _stop_when_asked(self, process: asyncio.subprocess.Process) -> None:
        await self.stopping.wait()
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.hurry.wait(), self.drain_seconds + _KILL_MARGIN_SECONDS)
            process.kill()


def _cause_of_death(exit_code: int) -> str:
    return f"died with exit code {exit_code}" if exit_code >= 0 else f"was killed by {signal.Signals(-exit_code).name}"


async def _is_ready(address: tuple[str, int]) -> bool:
    """Ask a replica whether it serves. The connection waits in the socket's queue while the replica starts."""
    try:
        reader, writer = await asyncio.open_connection(*address)
    except OSError:
        return False
    try:
        writer.write(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        status = await reader.readline()
        return status.split(b" ")[1:2] == [b"200"]
    except (OSError, ValueError):
        return False
    finally:
        writer.transport.abort()


async def _pass_on(process: asyncio.subprocess.Process, name: str) -> None:
    """Copy what a replica writes to our stderr, each line marked with its name."""
    if process.stdout is None:
        raise RuntimeError("a replica is started with a pipe")
    rest = b""
    while chunk := await process.stdout.read(_CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _CHUNK_BYTES:
            lines, rest = [*lines, rest], b""
        _write_lines(name, lines)
    if rest:
        _write_lines(name, [rest])


def _write_lines(name: str, lines: list[bytes]) -> None:
    for line in lines:
        sys.stderr.write(f"[{name}] {line.decode(errors='replace')}\n")
    sys.stderr.flush()
