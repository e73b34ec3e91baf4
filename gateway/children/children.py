"""Starts child processes through a watcher, which ends them when this process is gone, however it ends."""

from __future__ import annotations

import array
import asyncio
import contextlib
import itertools
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol
from weakref import WeakSet

from gateway.children import watcher
from gateway.errors import GatewayError, Overloaded

log = logging.getLogger(__name__)

START_SECONDS: Final = 10.0
"""How long the watcher may take to run a program, however long that needs to be ready."""
STOP_SECONDS: Final = 2 * watcher.GRACE_SECONDS + 2.0
"""How long a child may take to be gone once it was stopped, with all its descendants."""

_PROGRAM: Final = Path(watcher.__file__)
_PASSED: Final = ("LD_LIBRARY_PATH",)
"""Variables that the watcher gets: some interpreters need them to start."""
_RETRY_SECONDS: Final = 0.01
_REPORT_BYTES: Final = 64 * 1024


class ChildFailure(GatewayError):
    """A child cannot be started. The text says why, without its arguments and variables."""


class NoRoomForChild(ChildFailure):
    """So many children run that no other one may be started."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program to run. Its text contains neither arguments nor variables, which may be secret.

    A program without a slash is looked for in the `PATH` of `env`. Without a `cwd`, it runs where this process does.
    """

    argv: Sequence[str] = field(repr=False)
    env: Mapping[str, str] = field(repr=False)
    cwd: str | None = None


class ChildProcess:
    """A running program, with its pipes.

    Attributes:
        pid: also that of its process group.
        exited: set when the program has ended, or nobody can know any more whether it has.
        exit_code: of the program, negative for a signal; None while it runs, and if nobody knows.
    """

    pid: int
    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader

    def __init__(self, number: int, link: _Link) -> None:
        self.exited = asyncio.Event()
        self.exit_code: int | None = None
        self.started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._number = number
        self._link = link
        self._gone = asyncio.Event()
        self._pipes: list[asyncio.BaseTransport] = []
        self._notify: Callable[[], object] = lambda: None

    async def open(self, pipes: _Ends) -> None:
        """Take over our ends of its pipes."""
        self.stdin = await self._writer(pipes.stdin)
        self.stdout = await self._reader(pipes.stdout)
        self.stderr = await self._reader(pipes.stderr)

    async def stop(self) -> None:
        """End the program and everything that it has started; see `watcher`. Wait until they are gone, or too long."""
        self.stdin.close()
        await self._link.send({"stop": self._number})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await self._gone.wait()
        self.close()

    def close(self) -> None:
        """Close its pipes."""
        for pipe in self._pipes:
            pipe.close()

    def has_exited(self, code: int | None) -> None:
        """Keep the exit code."""
        if not self.exited.is_set():
            self.exit_code = code
            self.exited.set()

    def is_gone(self) -> None:
        """Note that nothing is left of it, or that it is lost."""
        self.has_exited(None)
        self._gone.set()
        self._notify()

    def when_gone(self, notify: Callable[[], object]) -> None:
        """Call something once nothing is left of it, now if that is so already."""
        self._notify = notify
        if self._gone.is_set():
            notify()

    async def _reader(self, end: int) -> asyncio.StreamReader:
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
        file = os.fdopen(end, "rb", 0, closefd=_closes_files(loop))
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
        self._pipes.append(transport)
        return reader

    async def _writer(self, end: int) -> asyncio.StreamWriter:
        loop = asyncio.get_running_loop()
        file = os.fdopen(end, "wb", 0, closefd=_closes_files(loop))
        protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
        transport, _ = await loop.connect_write_pipe(lambda: protocol, file)
        self._pipes.append(transport)
        return asyncio.StreamWriter(transport, protocol, None, loop)


def _closes_files(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether a loop closes the file of a pipe, and not only its descriptor.

    uvloop closes the descriptor, and then the file. By then, another thread may use the number for something else.
    """
    return isinstance(loop, asyncio.BaseEventLoop)


class Room(Protocol):
    """Gives room for children to their owners in turn, such as a `Bulkhead`."""

    async def enter(self, caller: Hashable, before_waiting: Callable[[], object]) -> None:
        """Wait for room. `before_waiting` is called if there is none at once.

        Raises:
            Overloaded: there was none in time.
        """
        ...

    def leave(self, caller: Hashable) -> None:
        """Give the room of a child back."""
        ...

    def held_by(self, caller: Hashable) -> int:
        """Return how many children are there for an owner."""
        ...


class Lender(Protocol):
    """Has children that nobody uses at the moment."""

    def make_room(self, caller: Hashable, held_by: Callable[[Hashable], int]) -> bool:
        """End one of them for a caller who waits, if its owner has more. Return whether there was one."""
        ...


class Children:
    """The child processes of this process: at most `most` of them. Belongs to one event loop.

    Their owners share the `room`, if there is one. Children that everybody uses, or the gateway, have the owner None:
    they are of nobody's share.

    Attributes:
        watchers_lost: how often their watcher has died.
        common: how many of them have no owner.
        lenders: those who are asked to end an unused child if there is no room.
    """

    def __init__(self, most: int, room: Room | None = None) -> None:
        self.most = most
        self.watchers_lost = 0
        self.common = 0
        self.lenders: WeakSet[Lender] = WeakSet()
        self.room = room
        self._waiting: list[Hashable] = []
        self._numbers = itertools.count(1)
        self._link: _Link | None = None

    @property
    def running(self) -> int:
        """How many run, with those that are ending."""
        return 0 if self._link is None else len(self._link.children)

    async def start(self, program: Program, owner: Hashable = None) -> ChildProcess:
        """Start a program for its owner, who waits if there is no room.

        Raises:
            ChildFailure: it cannot be run, or there is no room.
        """
        room = self.room
        if room is None or self.most < 1:
            return await self._start(program)
        place = object() if owner is None else owner
        self._waiting.append(owner)
        try:
            await room.enter(place, lambda: any(self._borrows(owner, each) for each in list(self.lenders)))
        except Overloaded:
            raise self._no_room() from None
        finally:
            self._waiting.remove(owner)
        self.common += owner is None

        def leave() -> None:
            self.common -= owner is None
            room.leave(place)

        try:
            child = await self._start(program)
        except BaseException:
            leave()
            raise
        child.when_gone(leave)
        return child

    def offer(self, lender: Lender) -> None:
        """Let somebody who waits have the room of a child that is not used any more; only `lenders` have children."""
        if lender in self.lenders:
            any(self._borrows(owner, lender) for owner in self._waiting)

    def _borrows(self, owner: Hashable, lender: Lender) -> bool:
        """Have an unused child end for an owner who waits. Those of everybody neither end for others nor borrow."""
        return owner is not None and lender.make_room(owner, self._held_by)

    def _held_by(self, owner: Hashable) -> int:
        return 0 if self.room is None or owner is None else self.room.held_by(owner)

    async def _start(self, program: Program) -> ChildProcess:
        """Start a program; by another watcher, if the one that was there ends at this moment."""
        link = self._working_link()
        try:
            return await link.start(next(self._numbers), program)
        except ChildFailure:
            if not link.has_died:
                raise
        return await self._working_link().start(next(self._numbers), program)

    def _working_link(self) -> _Link:
        """Return the link to a watcher that has room for one more child."""
        if self._link is None or self._link.is_lost:
            self._link = _Link(self._lost_watcher)
        if self.running >= self.most:
            raise self._no_room()
        return self._link

    def _no_room(self) -> NoRoomForChild:
        return NoRoomForChild(f"{self.most} child processes run already, and GATEWAY_MAX_CHILDREN allows no more")

    async def aclose(self) -> None:
        """End all children, and the watcher."""
        if self._link is not None:
            await self._link.aclose()

    def _lost_watcher(self) -> None:
        self.watchers_lost += 1


@dataclass(frozen=True, slots=True)
class _Ends:
    """One end of each pipe of a child."""

    stdin: int
    stdout: int
    stderr: int

    def close(self) -> None:
        for end in (self.stdin, self.stdout, self.stderr):
            os.close(end)


def _pipes() -> tuple[_Ends, _Ends]:
    """Return our ends of three new pipes, and those of the child."""
    (stdin_out, stdin_in), (stdout_out, stdout_in), (stderr_out, stderr_in) = os.pipe(), os.pipe(), os.pipe()
    return _Ends(stdin_in, stdout_out, stderr_out), _Ends(stdin_out, stdout_in, stderr_in)


class _Link:
    """A running watcher: orders go to it, and reports come from it. If it has died, all its children are lost.

    The process that is started here is the guard of the watcher; see `watcher`.
    """

    def __init__(self, lost: Callable[[], None]) -> None:
        self._lost = lost
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-I", "-S", str(_PROGRAM)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={name: os.environ[name] for name in _PASSED if name in os.environ},
                cwd="/",
                start_new_session=True,
            )
        self._socket.setblocking(False)
        self._sending = asyncio.Lock()
        self._orders: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self.children: dict[int, ChildProcess] = {}
        self.is_lost = False
        self._listening = asyncio.create_task(self._listen())

    @property
    def has_died(self) -> bool:
        """Whether the watcher has ended, and nobody asked it to."""
        return self.is_lost and not self._is_closing

    async def start(self, number: int, program: Program) -> ChildProcess:
        child = self.children[number] = ChildProcess(number, self)
        order = {
            "start": number,
            "argv": list(program.argv),
            "env": dict(program.env),
            "cwd": program.cwd or str(Path.cwd()),
        }
        ours, theirs = _pipes()
        opening = asyncio.create_task(child.open(ours))
        try:
            async with asyncio.timeout(START_SECONDS):
                await self.send(order, theirs)
                child.pid = await child.started
            await asyncio.shield(opening)
        except BaseException as error:
            await asyncio.wait({opening})
            child.close()
            await self.send({"stop": number})
            if isinstance(error, TimeoutError):
                raise ChildFailure("the watcher of child processes does not answer") from None
            if isinstance(error, ChildFailure):
                raise ChildFailure("; ".join([str(error), *_hints(program)])) from None
            raise
        return child

    async def send(self, order: Mapping[str, Any], descriptors: _Ends | None = None) -> None:
        """Send an order, whole even if this is cancelled, and close the descriptors that go with it."""
        task = asyncio.create_task(self._send(json.dumps(order).encode(), descriptors))
        self._orders.add(task)
        task.add_done_callback(self._orders.discard)
        await asyncio.shield(task)

    async def _send(self, body: bytes, descriptors: _Ends | None) -> None:
        header = len(body).to_bytes(watcher.LENGTH_BYTES, "big")
        ancillary = []
        if descriptors is not None:
            passed = array.array("i", (descriptors.stdin, descriptors.stdout, descriptors.stderr))
            ancillary.append((socket.SOL_SOCKET, socket.SCM_RIGHTS, passed))
        try:
            with contextlib.suppress(OSError):  # the watcher has died, which `_listen` finds
                async with self._sending:
                    while not self._sent(header, ancillary):  # noqa: ASYNC110 - asyncio cannot send descriptors
                        await asyncio.sleep(_RETRY_SECONDS)
                    await asyncio.get_running_loop().sock_sendall(self._socket, body)
        finally:
            if descriptors is not None:
                descriptors.close()

    def _sent(self, header: bytes, ancillary: list[tuple[int, int, array.array[int]]]) -> bool:
        """Send the beginning of an order, if there is room. Return whether there was."""
        try:
            self._socket.sendmsg([header], ancillary)
        except BlockingIOError:
            return False
        return True

    async def aclose(self) -> None:
        """End the watcher, which ends all children before."""
        self._is_closing = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        await asyncio.wait([self._listening], timeout=STOP_SECONDS)

    async def _listen(self) -> None:
        """Read reports until the watcher has ended."""
        loop, unread = asyncio.get_running_loop(), b""
        with contextlib.suppress(OSError):
            while piece := await loop.sock_recv(self._socket, _REPORT_BYTES):
                *lines, unread = (unread + piece).split(b"\n")
                for line in lines:
                    self._take(json.loads(line))
        self.is_lost = True
        self._socket.close()
        self._process.kill()
        self._process.wait()
        if self.has_died:
            self._lost()
            log.error("the watcher of child processes has died; its children are ended")
        for child in list(self.children.values()):
            self._lose(child)

    def _take(self, report: Mapping[str, Any]) -> None:
        ((event, number),) = ((event, number) for event, number in report.items() if event in _EVENTS)
        child = self.children.get(number)
        if child is None:
            return
        if event == "started":
            if not child.started.done():
                child.started.set_result(report["pid"])
        elif event == "failed":
            self._fail(child, str(report["reason"]))
        elif event == "exited":
            child.has_exited(report["code"])
        if event in ("failed", "gone"):
            del self.children[number]
            child.is_gone()

    def _lose(self, child: ChildProcess) -> None:
        """End what can be found of a child whose watcher has died. The guard of the watcher has ended the rest."""
        if child.started.done() and not child.started.cancelled() and child.started.exception() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.started.result(), signal.SIGKILL)
        self._fail(child, "the watcher of child processes has died")
        child.is_gone()
        child.close()

    @staticmethod
    def _fail(child: ChildProcess, reason: str) -> None:
        if not child.started.done():
            child.started.set_exception(ChildFailure(reason))


def _hints(program: Program) -> Iterator[str]:
    """Yield what may be wrong with a command that cannot be run. Arguments may be secret, also those in it."""
    command = program.argv[0]
    if shutil.which(command, path=program.env.get("PATH")) is not None:
        return
    if " " in command.strip():
        yield "put the arguments of the command into args"
    elif command.startswith("~"):
        yield "write the whole path, as ~ is not replaced"
    elif "/" in command:
        yield f"{command} is not a program"
    else:
        yield f"{command} is in no folder of PATH: write its whole path, or set PATH in env"


_EVENTS: Final = frozenset({"started", "failed", "exited", "gone"})
