"""Replicas as real processes, for tests: started on sockets of our own, watched, killed and stopped by their pid.

Each listening socket is bound once and kept open here, so a replica that is started anew has the address of the one
before, no port is ever guessed, and connections wait in the kernel until somebody serves them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from gateway.sealing.keyring import generate_entry

REPOSITORY = Path(__file__).resolve().parents[2]
START_SECONDS = 40.0
STOP_SECONDS = 10.0
POLL_SECONDS = 0.02

_METRIC = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def new_key() -> str:
    """Make an entry of `GATEWAY_SEAL_KEYS`."""
    return generate_entry(secrets.token_bytes)


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with its settings of the gateway replaced."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")}
    return {**kept, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1", **environ}


def wait_until(condition: Callable[[], bool], what: str, seconds: float = START_SECONDS) -> None:
    """Poll until `condition` holds; the time limit only ends a test that has failed."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} seconds for {what}")
        time.sleep(POLL_SECONDS)


class Replica:
    """One replica over all its restarts.

    Args:
        name: its replica id.
        environ: the settings it starts with; change them before a restart to start it with others.
        log_path: where its output goes, one JSON object a line.
    """

    def __init__(self, name: str, environ: Mapping[str, str], log_path: Path) -> None:
        self.name = name
        self.environ = dict(environ)
        self.log_path = log_path
        self.listener = socket.create_server(("127.0.0.1", 0))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port, the same over restarts."""
        host, port = self.listener.getsockname()
        return host, port

    @property
    def url(self) -> str:
        """The MCP endpoint."""
        host, port = self.address
        return f"http://{host}:{port}/mcp"

    @property
    def pid(self) -> int:
        """The running process."""
        return self._running.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise AssertionError(f"{self.name} was never started")
        return self._process

    def start(self) -> None:
        """Start the process. `wait_ready` waits until it serves."""
        options = ["--fd", str(self.listener.fileno()), "--replica-id", self.name, "--metrics-port", "0"]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gateway", "serve", *options],
                cwd=REPOSITORY,
                env=clean_environment({"GATEWAY_LOG_FORMAT": "json", **self.environ}),
                pass_fds=(self.listener.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        """Wait until `/readyz` says 200, or fail at once when the process ends."""
        deadline = time.monotonic() + START_SECONDS
        with socket.create_connection(self.address, timeout=START_SECONDS) as connection:
            # The connection waits in the queue of the socket until the replica accepts it.
            connection.sendall(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            while not select.select([connection], [], [], POLL_SECONDS)[0]:
                if not self.alive or time.monotonic() > deadline:
                    raise AssertionError(f"{self.name} did not start:\n{self.log_text()}")
            status = connection.makefile("rb").readline()
        if status.split(b" ")[1:2] != [b"200"]:
            raise AssertionError(f"{self.name} is not ready: {status!r}\n{self.log_text()}")

    def kill(self) -> None:
        """End the process without a chance to say goodbye."""
        self._running.kill()
        self._running.wait(STOP_SECONDS)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process alone."""
        self._running.send_signal(number)

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        """Wait for the process to end, and return its exit code."""
        return self._running.wait(seconds)

    def terminate(self) -> int:
        """Ask the process to leave, and return its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def restart(self) -> None:
        """Start the process again, after it has ended in whatever way, and wait until it serves."""
        if self.alive:
            self.terminate()
        self.start()
        self.wait_ready()

    def stop(self) -> None:
        """End the process for good, within a bounded time."""
        if self.alive:
            self.signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.wait()
        if self.alive:
            self.kill()
        self.listener.close()

    def log_text(self) -> str:
        """Return all output so far."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_lines(self) -> list[dict[str, Any]]:
        """Return the log records so far; output that is none counts as a message."""
        return [_record(line) for line in self.log_text().splitlines()]

    def logged(self, message: str, **fields: object) -> list[dict[str, Any]]:
        """Return the log records with this message and these fields."""
        wanted = {"message": message, **fields}
        return [line for line in self.log_lines() if all(line.get(name) == wanted[name] for name in wanted)]

    def metric(self, metric: str, /, **labels: str) -> float:
        """Return the value of one metric, 0 when it has none yet."""
        (*_, started) = self.logged("metrics")
        with urllib.request.urlopen(started["url"], timeout=STOP_SECONDS) as response:
            text = response.read().decode()
        return sum(
            float(found["value"])
            for found in _METRIC.finditer(text)
            if found["name"] == metric and dict(_LABEL.findall(found["labels"] or "")).items() >= labels.items()
        )


def _record(line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError:
        return {"message": line}
    return record if isinstance(record, dict) else {"message": line}


class Fleet:
    """Identical replicas: a context manager that starts them and leaves no process behind.

    Args:
        directory: where the logs go.
        environ: the settings of all replicas, on top of loopback defaults without identity and a key made for
            this fleet.
        names: the replica ids.
        own: further settings by replica id.
    """

    live: list[Fleet] = []  # noqa: RUF012 - whose logs are shown when a test fails

    def __init__(
        self,
        directory: Path,
        environ: Mapping[str, str] | None = None,
        *,
        names: Sequence[str] = ("r1", "r2"),
        own: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.environ = {
            "GATEWAY_TOOLS": "gateway.demo",
            "GATEWAY_SEAL_KEYS": new_key(),
            "GATEWAY_AUDIENCE": "tests",
            "GATEWAY_AUTH": "none",
            "GATEWAY_DRAIN_NOTICE_SECONDS": "0",
            **(environ or {}),
        }
        self.replicas = [
            Replica(name, {**self.environ, **(own or {}).get(name, {})}, directory / f"{name}.log") for name in names
        ]

    def __enter__(self) -> Self:
        """Start all replicas at once and wait until each serves."""
        Fleet.live.append(self)
        try:
            self.restart()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop all replicas at once."""
        Fleet.live.remove(self)
        for replica in self.replicas:
            if replica.alive:
                replica.signal(signal.SIGTERM)
        for replica in self.replicas:
            replica.stop()

    def __getitem__(self, name: str) -> Replica:
        """Return a replica by its id."""
        return next(replica for replica in self.replicas if replica.name == name)

    def restart(self) -> None:
        """End every process that runs, then start them all."""
        for replica in self.replicas:
            if replica.alive:
                replica.terminate()
        for replica in self.replicas:
            replica.start()
        for replica in self.replicas:
            replica.wait_ready()

    def logs(self) -> Iterator[tuple[str, str]]:
        """Return the log of each replica."""
        for replica in self.replicas:
            yield replica.name, replica.log_text()
