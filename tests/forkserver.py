"""Starts `python -m …` by forking a process that has imported the gateway, which saves each start its imports.

Forks end with the server, and the server ends with the process that uses it. So a test run that is killed leaves none
of them behind.

`start` is what tests call. The server is this module, run by `start` when it is first needed. It imports, and then does
nothing but fork: no thread and no event loop ever runs in it. Each fork becomes what a fresh interpreter would be when
it runs the module: its working directory, environment, arguments, file descriptors, session and search path. It ends
as an interpreter does, too: the server's loop returns in it, and the module runs to the end of the program.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import importlib
import os
import pickle
import pkgutil
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BufferedWriter, FileIO, TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import IO, Final, NamedTuple, NoReturn, TextIO, TypeAlias

import coverage

TOP: Final = Path(__file__).resolve().parents[1]
PACKAGES: Final = ("gateway", "gateway_workers")
LEFT_OUT: Final = ("gateway.demo", "gateway.sizing", "gateway.observability.tracing")
"""Modules that a process may not need, or that read the environment when imported."""

ALSO: Final = ("uvloop", "uvicorn.lifespan.on", "fastapi.responses", "multiprocessing.connection")
"""Modules that the gateway imports when it serves."""

MEASURED: Final = "COVERAGE_PROCESS_CONFIG"
"""The variable with which coverage also measures processes of tests. In a fork, it starts with the fork's module."""

FREE: Final = ("GATEWAY_", "TEST_", "PYTEST_", "PYTHONUNBUFFERED", "XDG_RUNTIME_DIR", MEASURED)
"""Prefixes of variables that nothing reads before the fork, so they may differ from start to start."""

_MAX_REQUEST: Final = 150_000
_MAX_DESCRIPTORS: Final = 64
_STANDARD: Final = (0, 1, 2)
_MESSAGE: Final = struct.Struct("ci")
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_PID: Final = b"p"
_CODE: Final = b"c"

Stream: TypeAlias = int | IO[bytes] | IO[str] | None


class ForkServerError(Exception):
    """The fork server, or the keeper of one of its forks, is gone."""


class Request(NamedTuple):
    """The process that a fork becomes.

    Attributes:
        module: what `python -m` would run.
        arguments: its arguments.
        environ: its whole environment.
        cwd: its working directory.
        descriptors: the numbers that the file descriptors sent along have in it, beginning with 0, 1 and 2.
        new_session: whether it leads a session of its own.
    """

    module: str
    arguments: Sequence[str]
    environ: Mapping[str, str]
    cwd: str
    descriptors: Sequence[int]
    new_session: bool


class Forked:
    """A process that was forked for us, with the part of `subprocess.Popen` that tests use.

    Args:
        keeper: the connection to what waits for the process. It says the pid, then how the process ended; the process
            stays a zombie until that is read, so that nobody else can get its pid.
    """

    def __init__(self, keeper: socket.socket) -> None:
        self._keeper = keeper
        self.returncode: int | None = None
        self.pid = self._read(_PID)

    def _read(self, wanted: bytes) -> int:
        told = self._keeper.recv(_MESSAGE.size)
        kind, number = _MESSAGE.unpack(told) if told else (b"", 0)
        if kind != wanted:
            self._keeper.close()
            raise ForkServerError("the fork server, or what keeps its fork, was killed, or the fork could not begin")
        return int(number)

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while the process runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process, and return its exit code.

        Raises:
            TimeoutExpired: it still runs.
        """
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._keeper, select.POLLIN)
            if not poll.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout or 0)
            self.returncode = self._read(_CODE)
            self._keeper.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """A running fork server. It ends when this process does."""

    def __init__(self) -> None:
        self.environ = _fixed({**os.environ, "PYTHONPATH": str(TOP)})
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.forkserver", str(theirs.fileno())],
                cwd=TOP,
                env=self.environ,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C is for the process that forks
            )

    def close(self) -> None:
        """End the server, and with it the forks that still run."""
        self._control.close()
        self.process.wait()

    def can_fork(self, command: Sequence[str], environ: Mapping[str, str]) -> bool:
        """Return whether a fork is as good as a start: a module, in our interpreter, with the server's environment."""
        return [*command[:2]] == [sys.executable, "-m"] and _fixed(environ) == self.environ

    def fork(self, request: Request, descriptors: Sequence[int]) -> Forked:
        """Have the server fork.

        Raises:
            ForkServerError: it is gone.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                socket.send_fds(self._control, [pickle.dumps(request)], [theirs.fileno(), *descriptors])
            except OSError as error:
                ours.close()
                raise ForkServerError(f"the fork server was killed: {error}") from None
        return Forked(ours)


_servers: list[ForkServer] = []
_starting: Final = threading.Lock()


def start(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    pass_fds: Sequence[int] = (),
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
    start_new_session: bool = False,
) -> Forked | subprocess.Popen[bytes]:
    """Start a process like `subprocess.Popen`, by a fork where that makes no difference.

    Pipes are made by the caller: PIPE is not understood.
    """
    with _starting:
        if not _servers:
            _servers.append(ForkServer())
    if not _servers[0].can_fork(command, env):
        return subprocess.Popen(
            command,
            env=env,
            cwd=cwd,
            pass_fds=pass_fds,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=start_new_session,
        )
    with Path(os.devnull).open("r+b") as nothing:
        streams = zip((stdin, stdout, stderr), _STANDARD, strict=True)
        given = [_descriptor(stream, own, nothing.fileno()) for stream, own in streams]
        request = Request(command[2], command[3:], env, str(cwd), [*_STANDARD, *pass_fds], start_new_session)
        return _servers[0].fork(request, [*given, *pass_fds])


def run(
    command: Sequence[str], *, env: Mapping[str, str], cwd: Path, pass_fds: Sequence[int] = (), timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Start a process like `start`, wait for its end, and return the result with its output as text."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = start(command, env=env, cwd=cwd, pass_fds=pass_fds, stdout=out, stderr=err)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(command, code, out.read(), err.read())


def stop() -> None:
    """End the server, if there is one."""
    while _servers:
        _servers.pop().close()


def _fixed(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that the server and each of its forks must share."""
    return {name: value for name, value in environ.items() if not name.startswith(FREE)}


def _descriptor(stream: Stream, own: int, nothing: int) -> int:
    if stream is None:
        return own
    if stream == subprocess.DEVNULL:
        return nothing
    return stream if isinstance(stream, int) else stream.fileno()


def serve(control: socket.socket) -> str:
    """Fork for each request; in each fork, set it up as requested and return the module to run."""
    _import_all()
    gc.collect()
    gc.freeze()
    prctl = ctypes.CDLL(None).prctl
    threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - only their number is needed
    if threads != 1:
        raise ForkServerError(f"{threads} threads run in the fork server: an import starts them, and forks lack them")
    while True:
        message, (keeper, *descriptors) = _receive(control)
        _reap()
        server = os.getpid()
        if os.fork() == 0:
            break
        _close(keeper, *descriptors)
    _end_with(server, prctl)
    control.close()
    keeping = os.getpid()
    if pid := os.fork():
        _close(*_STANDARD, *descriptors)
        _keep(pid, keeper)
    _end_with(keeping, prctl)
    request: Request = pickle.loads(message)
    _become(request, descriptors, keeper)
    return request.module


def _import_all() -> None:
    from gateway.cli.own_code import find_own_workers  # noqa: PLC0415 - only for the server

    path = sys.path[1:]  # without the working directory, which differs in each fork
    find_own_workers()
    for name in (*chain.from_iterable(map(_modules, PACKAGES)), *ALSO):
        importlib.import_module(name)
    sys.path[:] = path


def _modules(package: str) -> Iterator[str]:
    """Return the names of a package's modules without importing excluded ones, unlike `walk_packages`."""
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        if module.name in LEFT_OUT or module.name.endswith("__main__"):
            continue
        yield module.name
        if module.ispkg:
            yield from _modules(module.name)


def _receive(control: socket.socket) -> tuple[bytes, list[int]]:
    """Return the next request and its file descriptors, or end when the requesting process has ended."""
    message, descriptors, _, _ = socket.recv_fds(control, _MAX_REQUEST, _MAX_DESCRIPTORS)
    if not message:
        _reap()
        os._exit(0)
    return message, descriptors


def _reap() -> None:
    """Forget the keepers of ended processes."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _end_with(parent: int, prctl: Callable[[int, int], int]) -> None:
    """Have the system kill this process when its parent dies."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _keep(pid: int, keeper: int) -> NoReturn:
    """Wait for the end of a process, report it, and release its pid once that was read or nobody listens."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
    with contextlib.suppress(OSError):
        os.write(keeper, _MESSAGE.pack(_CODE, code))
        os.read(keeper, 1)
    os.waitpid(pid, 0)  # so that its times count as those of a descendant
    os._exit(0)


def _become(request: Request, descriptors: Sequence[int], keeper: int) -> None:
    """Turn this fork into the requested process, then report its pid."""
    if request.new_session:
        os.setsid()
    os.chdir(request.cwd)
    os.environ.clear()
    os.environ.update(request.environ)
    sys.argv[1:] = request.arguments
    sys.path.insert(0, request.cwd)
    above = 1 + max(request.descriptors)
    keeper, *moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, above) for descriptor in (keeper, *descriptors)]
    for descriptor, number in zip(moved, request.descriptors, strict=True):
        os.dup2(descriptor, number)
    _close(*({*map(int, os.listdir("/proc/self/fd"))} - {keeper, *request.descriptors}))  # noqa: PTH208 - names
    buffered = not request.environ.get("PYTHONUNBUFFERED")
    sys.stdout = sys.__stdout__ = _writer(1, sys.stdout, buffered=buffered, by_line=os.isatty(1))  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _writer(2, sys.stderr, buffered=buffered, by_line=True)  # type: ignore[misc]
    os.write(keeper, _MESSAGE.pack(_PID, os.getpid()))
    os.close(keeper)


def _writer(number: int, like: TextIO, *, buffered: bool, by_line: bool) -> TextIOWrapper:
    """Return a stream for a file descriptor, as the interpreter makes it at its start."""
    raw = FileIO(number, "wb", closefd=False)
    raw.name = like.name
    return TextIOWrapper(
        BufferedWriter(raw) if buffered else raw,
        encoding=like.encoding,
        errors=like.errors,
        newline="\n",
        line_buffering=buffered and by_line,
        write_through=not buffered,
    )


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


if __name__ == "__main__":
    asked_for = serve(socket.socket(fileno=int(sys.argv[1])))
    if os.environ.get(MEASURED):
        coverage.process_startup()
    runpy.run_module(asked_for, run_name="__main__", alter_sys=True)
