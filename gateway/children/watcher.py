"""The program that is the parent of all child processes of one gateway process, and ends them with it.

A killed process cannot end its children, so they have a parent that only watches. It is run alone, as
`python -I -S watcher.py`, with a socket as its standard input. Orders come as a length of four bytes and a JSON object;
one to start a child brings three descriptors. Reports are JSON objects, one a line. On Linux, processes that outlive
their parents become children of the watcher, so nothing that a child starts can hide from it. If the watcher is killed,
its own parent gets them, the guard, and ends them.

A process may start another one and end before a signal reaches it, again and again. No look at all processes is sure
to find it, but the kernel reports each orphan that ends. So a child counts as gone only if nothing ended
during a look that found nothing. The watcher ends only when the kernel says that it has no child.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

GRACE_SECONDS: Final = 2.0
"""How long a child may take to end after its standard input was closed, and again after SIGTERM."""
HURRIED_SECONDS: Final = 1.0
"""The same when the gateway is gone."""
MARK: Final = "SEALED_GATEWAY_CHILD"
"""A variable of each child, with its number: who belongs to it, even if its parent has ended."""
LENGTH_BYTES: Final = 4
STREAMS: Final = 3

_TICK_SECONDS: Final = 0.05
_HELD_SECONDS: Final = 1.0
"""How long a child that was killed stays for ends of processes that may not be its own."""
_GUARD_SECONDS: Final = 10
"""How long the guard may take. There are processes that it cannot kill."""
_LOOKS: Final = 3
_HUNT_SECONDS: Final = 0.02
_NEXT: Final = 64
"""How many numbers to look at after that of the last process that has ended."""
_STATE, _THREADS, _MEMORY = 0, 17, 20
"""Fields of `/proc/PID/stat` after the name; see proc(5)."""
_RUNNING, _CLOSING, _TERMINATING, _KILLING = range(4)

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_PR_SET_DUMPABLE: Final = 4
_PR_SET_CHILD_SUBREAPER: Final = 36


class _FoundProcess(NamedTuple):
    """A process that runs."""

    pid: int
    parent: int
    group: int
    session: int
    is_ending: bool


class _Look(NamedTuple):
    """All processes below this one. If a process has ended meanwhile, it may have left one that is not here."""

    processes: dict[int, _FoundProcess]
    families: dict[int, list[_FoundProcess]]
    is_certain: bool


class _WatchedChild:
    """A program and everything that it has started: its group, its session and its descendants.

    A process that has left all of these still has the variable `MARK`, unless it has removed that.
    """

    def __init__(self, number: int, process: subprocess.Popen[bytes]) -> None:
        self.number = number
        self.pid = process.pid
        self.process = process
        self.stage = _RUNNING
        self.ends_at = 0.0
        self.has_exited = False

    def family(self, processes: Mapping[int, _FoundProcess]) -> list[_FoundProcess]:
        """Return which of these processes belong to this child."""
        return [each for each in processes.values() if self._has(each, processes)]

    def is_given_up(self) -> bool:
        """Return whether it has been killed for so long that what still ends is another one's."""
        return self.stage == _KILLING and time.monotonic() >= self.ends_at + _HELD_SECONDS

    def _has(self, process: _FoundProcess, processes: Mapping[int, _FoundProcess]) -> bool:
        top = process
        while self.pid not in (top.pid, top.group, top.session):
            if top.parent not in processes:
                return any(_is_marked(each.pid, self.number) for each in (process, top))
            top = processes[top.parent]
        return True


class ChildWatcher:
    """Follows the orders that come through a socket, until it is closed and no process is left."""

    def __init__(self, link: socket.socket, bind: Callable[[], None] | None) -> None:
        self._link = link
        self._bind = bind
        self._children: dict[int, _WatchedChild] = {}
        self._grace = GRACE_SECONDS
        self._is_wanted = True
        self._has_left_some = False
        self._last_ended = 0
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._hurry())

    def run(self) -> None:
        """Work until the gateway is gone and nothing is left of its children."""
        waiting = select.poll()
        waiting.register(self._woken, select.POLLIN)
        waiting.register(self._link, select.POLLIN)
        while self._is_wanted or self._children or self._has_left_some:
            is_busy = self._has_left_some or any(child.stage != _RUNNING for child in self._children.values())
            ready = {number for number, _ in waiting.poll(_TICK_SECONDS * 1000 if is_busy else None)}
            if self._woken in ready:
                os.read(self._woken, 4096)
            if self._is_wanted and self._link.fileno() in ready and not self._obeyed():
                self._hurry()
            if not self._is_wanted:
                with contextlib.suppress(KeyError):
                    waiting.unregister(self._link)
            self._reap()
            self._advance()

    def end_what_is_left(self) -> None:
        """Work without orders, until nothing is left below this process."""
        self._is_wanted = False
        self._has_left_some = self._reap()
        self.run()

    def _obeyed(self) -> bool:
        """Follow the next order. Return whether there was one."""
        try:
            header, descriptors, _, _ = socket.recv_fds(self._link, LENGTH_BYTES, STREAMS, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            return False
        try:
            body = self._received(int.from_bytes(header, "big")) if len(header) == LENGTH_BYTES else None
            if body is None:
                return False
            order = json.loads(body)
            if "stop" in order:
                self._stop(order["stop"])
            else:
                self._start(order, descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return True

    def _received(self, size: int) -> bytes | None:
        body = bytearray()
        while len(body) < size:
            piece = self._link.recv(size - len(body))
            if not piece:
                return None
            body += piece
        return bytes(body)

    def _start(self, order: Mapping[str, Any], descriptors: list[int]) -> None:
        number = order["start"]
        try:
            process = subprocess.Popen(  # noqa: S603 - the operator's own program
                order["argv"],
                stdin=descriptors[0],
                stdout=descriptors[1],
                stderr=descriptors[2],
                env={**order["env"], MARK: str(number)},
                cwd=order["cwd"],
                start_new_session=True,
                preexec_fn=self._bind,  # noqa: PLW1509 - this program has one thread
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self._report({"failed": number, "reason": getattr(error, "strerror", None) or type(error).__name__})
            return
        self._children[number] = _WatchedChild(number, process)
        self._report({"started": number, "pid": process.pid})

    def _stop(self, number: int) -> None:
        child = self._children.get(number)
        if child is not None and child.stage == _RUNNING:
            self._enter(child, _CLOSING)

    def _hurry(self) -> None:
        """End all children, since nobody wants them any more."""
        self._is_wanted = False
        self._grace = HURRIED_SECONDS
        latest = time.monotonic() + HURRIED_SECONDS
        for child in self._children.values():
            if child.stage == _RUNNING:
                self._enter(child, _CLOSING)
            child.ends_at = min(child.ends_at, latest)

    def _enter(self, child: _WatchedChild, stage: int) -> None:
        child.stage, child.ends_at = stage, time.monotonic() + self._grace

    def _reap(self) -> bool:
        """Take the exit codes of all processes that have ended, also of those that others have left.

        Return whether any other process is left below this one.
        """
        by_pid = {child.pid: child for child in self._children.values()}
        while (ended := _next_ended()) is not None:
            pid, status = ended
            if pid == 0:
                return True
            self._last_ended = pid
            child = by_pid.get(pid)
            if child is not None:
                child.has_exited = True
                child.process.returncode = os.waitstatus_to_exitcode(status)
                self._report({"exited": child.number, "code": child.process.returncode})
        return False

    def _advance(self) -> None:
        """Take the next step with each child that has ended or should end."""
        moving = [child for child in self._children.values() if child.stage != _RUNNING or child.has_exited]
        if not moving and not self._has_left_some:
            return
        processes, families, is_certain = self._look(moving)
        for child in moving:
            family = families[child.number]
            if child.has_exited and not family and (is_certain or child.is_given_up()):
                del self._children[child.number]
                self._report({"gone": child.number})
            elif child.stage < _TERMINATING and (child.has_exited or time.monotonic() >= child.ends_at):
                self._enter(child, _TERMINATING)
                _signal_group(child.pid, family, signal.SIGTERM)
            elif time.monotonic() >= child.ends_at:
                child.stage = _KILLING
        self._has_left_some = not self._children and self._reap()
        self._strike(processes)
        if not is_certain and (self._has_left_some or any(child.stage == _KILLING for child in moving)):
            self._hunt()

    def _look(self, moving: Iterable[_WatchedChild]) -> _Look:
        """Look at all processes below this one, if possible while none of them ends."""
        for _ in range(_LOOKS):
            last_ended = self._last_ended
            processes = _descendants(_all_numbers())
            families = {child.number: child.family(processes) for child in moving}
            self._reap()
            is_certain = self._last_ended == last_ended and all(map(_lives, processes))
            if is_certain:
                break
        return _Look(processes, families, is_certain)

    def _strike(self, processes: Mapping[int, _FoundProcess]) -> None:
        """Kill those of these processes that are to be killed."""
        for child in self._children.values():
            if child.stage == _KILLING:
                _kill(child.family(processes))
        # Processes without a mark may belong to any child, so they are ended when no child is left.
        if self._has_left_some:
            _kill(processes.values())

    def _hunt(self) -> None:
        """Kill what starts another process and ends sooner than all can be looked at: its number is the next one."""
        ends_at = time.monotonic() + _HUNT_SECONDS
        while time.monotonic() < ends_at and self._reap():
            for number in range(self._last_ended + 1, self._last_ended + _NEXT):
                if _exists(number):
                    self._strike(_descendants([number]))

    def _report(self, report: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the gateway is gone, as the next look at the socket shows
            self._link.sendall(json.dumps(report).encode() + b"\n")


def _next_ended() -> tuple[int, int] | None:
    """Take the exit code of a process that has ended; of process 0 if none has, None if there is no process."""
    try:
        return os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None


def _all_numbers() -> list[int]:
    """Return the numbers of all processes. There are none where there is no `/proc`."""
    with contextlib.suppress(FileNotFoundError):
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - fast
    return []


def _descendants(numbers: Iterable[int]) -> dict[int, _FoundProcess]:
    """Return those of these processes that are below this one and have not ended, with all between."""
    processes: dict[int, _FoundProcess] = {}
    for number in numbers:
        pid = number
        while pid not in processes and (process := _process(pid)) is not None:
            processes[pid] = process
            pid = process.parent
    below = {os.getpid()}
    while more := {each.pid for each in processes.values() if each.parent in below} - below:
        below |= more
    return {pid: processes[pid] for pid in below - {os.getpid()}}


def _process(pid: int) -> _FoundProcess | None:
    """Read about one process; None if there is none, or it has ended and only its parent has not noticed.

    A process whose first thread has ended looks like that, too, but others of its threads may run.
    """
    try:
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fields = os.read(file, 4096).rpartition(b")")[2].split()
    except OSError:
        return None
    finally:
        os.close(file)
    if not fields or (fields[_STATE] in (b"Z", b"X") and fields[_THREADS] in (b"0", b"1")):
        return None
    parent, group, session = fields[1:4]
    has_memory = fields[_MEMORY] != b"0" or fields[_THREADS] not in (b"0", b"1")
    return _FoundProcess(pid, int(parent), int(group), int(session), is_ending=not has_memory)


def _exists(pid: int) -> bool:
    try:
        return os.getpgid(pid) > 0
    except OSError:
        return False


def _lives(pid: int) -> bool:
    """Return whether a process is not about to end: one that is has no variables left, and no mark."""
    process = _process(pid)
    return process is not None and not process.is_ending


def _is_marked(pid: int, number: int) -> bool:
    """Return whether a process has the mark of a child. A process that hides its variables has none."""
    mark = f"{MARK}={number}".encode()
    if (variables := _read(f"/proc/{pid}/environ")) or not _exists(pid):
        return mark in variables.split(b"\0")
    with contextlib.suppress(OSError):  # its first thread may have ended
        return any(mark in _read(f"/proc/{pid}/task/{thread}/environ").split(b"\0") for thread in _threads(pid))
    return False


def _threads(pid: int) -> list[str]:
    return os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - fast


def _read(path: str) -> bytes:
    """Return what a file has; nothing if it cannot be read."""
    try:
        with open(path, "rb", 0) as file:  # noqa: PTH123 - fast
            return file.read()
    except OSError:
        return b""


def _signal_group(group: int, family: Iterable[_FoundProcess], number: signal.Signals) -> None:
    """Send a signal to a process group at once. If it has no process, its number may be another one's by now."""
    if any(each.group == group for each in family):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)


def _kill(processes: Iterable[_FoundProcess]) -> None:
    """Kill processes with their groups, in which nothing can be started meanwhile. No group has members elsewhere."""
    for each in processes:
        for kill, number in ((os.killpg, each.group), (os.kill, each.pid)):
            if number not in (0, os.getpgrp()):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    kill(number, signal.SIGKILL)


def _adopt() -> None:
    """Get the processes that others leave, and hide the variables that pass through."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _bound_to_this_process(number: signal.Signals) -> Callable[[], None]:
    """Return what a child does so that it gets a signal when this process ends."""
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return bind


def _guard() -> None:
    """Return in a child, and wait for its end here. Then end what it has left, and this process.

    The gateway learns of the end of the watcher when this process has ended too. If this one is killed, the watcher
    ends its children.
    """
    _adopt()
    bind = _bound_to_this_process(signal.SIGTERM)
    watcher = os.fork()
    if watcher == 0:
        bind()
        return
    os.waitpid(watcher, 0)
    signal.alarm(_GUARD_SECONDS)
    with socket.socket(fileno=0) as link:
        ChildWatcher(link, None).end_what_is_left()
    os._exit(0)


def main() -> None:
    """Watch."""
    bind = None
    if sys.platform == "linux":
        _guard()
        _adopt()
        bind = _bound_to_this_process(signal.SIGKILL)
    with socket.socket(fileno=0) as link:
        ChildWatcher(link, bind).run()


if __name__ == "__main__":
    main()
