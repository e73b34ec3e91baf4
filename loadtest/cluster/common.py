"""The basics of a cluster's processes: waiting, ports, keys, environments, programs, and a process with a log."""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Protocol

REPOSITORY = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
START_SECONDS = 40.0
STOP_SECONDS = 40.0
POLL_SECONDS = 0.02
SYSTEM_DIRECTORIES = (
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/opt/homebrew/bin",
)


class ClusterError(Exception):
    """Something is wrong with the cluster. The message shows the log of the process at fault."""


def wait_until(condition: Callable[[], bool], what: str, seconds: float = START_SECONDS) -> None:
    """Poll until `condition` holds.

    Args:
        condition: the condition, which must be cheap to ask.
        what: the condition in words, for the error.
        seconds: how long at most; this only ends a wait that cannot succeed.

    Raises:
        ClusterError: the time is over.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise ClusterError(f"waited {seconds:g} seconds for {what}")
        time.sleep(POLL_SECONDS)


def new_key() -> str:
    """Make an entry of `GATEWAY_SEAL_KEYS`, as `gateway keys new` does."""
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).rstrip(b"=").decode()


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment, with its settings for the gateway and for traces replaced by `environ`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GATEWAY_", "OTEL_"))}
    return {**kept, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1", **environ}


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with reserve_port() as reserved:
        return port_of(reserved)


def reserve_port() -> socket.socket:
    """Return a socket that reserves a free port for processes started here, until it is closed.

    It is bound and does not listen, so no other process gets the port. A server that sets SO_REUSEADDR, as all of ours
    do, can listen on it. Until one does, connections are refused.
    """
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((HOST, 0))
    return reserved


def port_of(bound: socket.socket) -> int:
    """Return the port that a socket is bound to."""
    return int(bound.getsockname()[1])


def find_program(*names: str, package: str) -> str:
    """Return the path of the first of these programs that the system has.

    Programs of an active virtual environment do not count: the Redis that comes in a wheel is old and has no TLS.

    Raises:
        ClusterError: the system has none of them; the message names the Debian package.
    """
    own = str(Path(sys.executable).parent)
    searched = [*os.environ.get("PATH", "").split(os.pathsep), *SYSTEM_DIRECTORIES]
    for name in names:
        found = shutil.which(name, path=os.pathsep.join(directory for directory in searched if directory != own))
        if found:
            return found
    raise ClusterError(f"{' or '.join(names)} is missing: install it (on Debian and Ubuntu the package is {package})")


class Process(Protocol):
    """The part of `subprocess.Popen` that is used here."""

    @property
    def pid(self) -> int:
        """Its process id."""

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal, or None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it ends, and return its exit code, or raise TimeoutExpired."""

    def send_signal(self, sig: int, /) -> None:
        """Send a signal, unless it has ended."""

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""


class LoggedProcess:
    """A process over all its restarts, with one log for all of them.

    Subclasses define in `_command` what to start, and in `wait_ready` when it can be used.

    Args:
        name: its name in errors.
        environ: its environment, on top of this process's without settings of the gateway; changes take effect at
            the next start.
        log_path: where its output is appended.

    Attributes:
        popen: starts it. Tests start hundreds, and put something faster here.
        cwd: the folder that it starts in.
    """

    popen: ClassVar[Callable[..., Process]] = subprocess.Popen

    def __init__(self, name: str, environ: Mapping[str, str], log_path: Path) -> None:
        self.name = name
        self.environ = dict(environ)
        self.log_path = log_path
        self.cwd = REPOSITORY
        self._process: Process | None = None
        self._log_start = 0
        self._kept = contextlib.ExitStack()

    def _keep_port(self) -> int:
        """Return a free port, kept until the process is stopped for good."""
        return port_of(self._kept.enter_context(reserve_port()))

    def _command(self) -> Sequence[str]:
        raise NotImplementedError

    def _inherited(self) -> Sequence[int]:
        """Return the file descriptors that the process gets."""
        return ()

    def wait_ready(self) -> None:
        """Wait until it can be used.

        Raises:
            ClusterError: it ends instead, or takes too long.
        """
        raise NotImplementedError

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The id of the process that runs or ran last."""
        return self._last.pid

    @property
    def _last(self) -> Process:
        if self._process is None:
            raise ClusterError(f"{self.name} was never started")
        return self._process

    def start(self) -> None:
        """Start the process. `wait_ready` waits until it can be used.

        Raises:
            ClusterError: it runs already.
        """
        if self.alive:
            raise ClusterError(f"{self.name} is already running")
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = self.popen(
                self._command(),
                cwd=self.cwd,
                env=clean_environment(self.environ),
                pass_fds=self._inherited(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the process that started the cluster
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, but not to its children."""
        self._last.send_signal(number)

    def pause(self) -> None:
        """Pause the process."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the paused process continue."""
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process, without a chance to clean up."""
        self._last.kill()
        self.wait()

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        """Wait for the process to end, and return its exit code.

        Raises:
            ClusterError: it has not ended in time.
        """
        try:
            return self._last.wait(seconds)
        except subprocess.TimeoutExpired:
            raise ClusterError(f"{self.name} did not stop within {seconds:g} seconds:\n{self.log_text()}") from None

    def terminate(self) -> int:
        """Ask the process to stop, and return its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def restart(self) -> None:
        """Start the process again after it has ended, and wait until it can be used."""
        if self.alive:
            self.terminate()
        self.start()
        self.wait_ready()

    def stop(self) -> None:
        """End the process for good: gently, or by force when that takes too long."""
        try:
            if self.alive:
                self.signal(signal.SIGTERM)
                self.resume()
                with contextlib.suppress(ClusterError):
                    self.wait()
        finally:
            self.end()

    def end(self) -> None:
        """End the process at once and for good."""
        if self.alive:
            self.kill()
        self._kept.close()

    def log_text(self) -> str:
        """Return all output so far."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def _text_since_start(self) -> str:
        """Return the output of the process that runs or ran last."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def _wait_started(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds, or fail at once when the process ends."""
        try:
            wait_until(lambda: not self.alive or condition(), f"{self.name} to start")
        except ClusterError as error:
            raise ClusterError(f"{error}:\n{self.log_text()}") from None
        if not self.alive:
            raise ClusterError(f"{self.name} did not start:\n{self.log_text()}")
