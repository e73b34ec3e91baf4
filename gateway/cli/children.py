"""The processes of `gateway dev`: starts and watches them, restarts them when they die, and stops them at the end."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from io import FileIO
from typing import Any, Final, Literal, TypeAlias

from gateway.cli.console import Console

EXIT_FAILED: Final = 1
EXIT_CONFIGURATION: Final = 2

_EARLY_DEATH_SECONDS: Final = 30.0
_MAX_EARLY_DEATHS: Final = 3
_BACKOFF_SECONDS: Final = 0.5
_READY_RETRY_SECONDS: Final = 0.1
_KILL_MARGIN_SECONDS: Final = 2.0
_LAST_WORDS_SECONDS: Final = 3.0
_LAST_WORDS_SECONDS_WHEN_STOPPING: Final = 1.0
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


State: TypeAlias = Literal["starting", "ready", "stopping", "stopped", "killed"]


def _no_words() -> str:
    return ""


def _set() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass(slots=True)
class Child:
    """One process over all its restarts.

    Attributes:
        name: for people; marks each line that the process writes.
        is_ready: returns whether the process serves; None if it cannot be asked, and counts as ready once it runs.
        details: what to print besides the name when it is ready.
        environ: variables that it gets in addition to those of all children.
        last_words: returns what to print besides the exit code when it has died.
        ready: set when the process is ready for the first time.
        wanted: set while the process should run; see `Nursery.stop`.
        ordered: whether the running process was ordered to end; its end then does not count as a death.
    """

    name: str
    command: list[str]
    is_ready: Callable[[], Awaitable[bool]] | None = None
    details: str = ""
    descriptors: tuple[int, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    last_words: Callable[[], str] = _no_words
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    wanted: asyncio.Event = field(default_factory=_set)
    ordered: bool = False
    state: State = "starting"
    process: asyncio.subprocess.Process | None = None
    starts: int = 0
    early_deaths: int = 0
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    def enter(self, state: State) -> None:
        """Note what the process does now."""
        self.state = state
        self._moved.set()

    async def until(self, *states: State) -> None:
        """Wait until the process is in one of these states. Only one task may wait at a time."""
        while self.state not in states:
            self._moved.clear()
            await self._moved.wait()


@dataclass(slots=True)
class Orders:
    """The order to stop, and the exit code of the run, which all children share.

    `hurry` stops them at once. The exit code is 0 unless a child gave up.
    """

    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    exit_code: int = 0

    def give_up(self, exit_code: int) -> None:
        """Stop the run because a child cannot continue."""
        if not self.stopping.is_set():
            self.exit_code = exit_code
            self.stopping.set()


class Nursery:
    """Keeps children running until it is asked to stop or has to give up.

    A child that has not stopped in `drain_seconds` is killed a little later. `stop` is `orders.stopping` if None.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        orders: Orders,
        drain_seconds: float,
        console: Console,
        stop: asyncio.Event | None = None,
    ) -> None:
        self._environ = environ
        self._orders = orders
        self._drain_seconds = drain_seconds
        self._console = console
        self._stop = orders.stopping if stop is None else stop
        self._before_exec = bind_to_parent()

    async def keep(self, child: Child) -> None:
        """Start a child, and restart it whenever it dies, until asked to stop."""
        while not self._stop.is_set():
            if not child.wanted.is_set():
                await first_of(child.wanted.wait(), self._stop.wait())
                continue
            child.ordered = False
            started = asyncio.get_running_loop().time()
            exit_code = await self._run_once(child)
            if self._stop.is_set():
                return
            if child.ordered:
                self._note_order(child, "killed" if exit_code == -signal.SIGKILL else "stopped")
                continue
            words = child.last_words()
            self._console.say(f"{child.name} {_cause_of_death(exit_code)}{f': {words}' if words else ''}")
            if exit_code == EXIT_CONFIGURATION:
                self._orders.give_up(EXIT_CONFIGURATION)
                return
            lived_seconds = asyncio.get_running_loop().time() - started
            child.early_deaths = child.early_deaths + 1 if lived_seconds < _EARLY_DEATH_SECONDS else 0
            if child.early_deaths == _MAX_EARLY_DEATHS:
                self._console.say(f"{child.name} died {_MAX_EARLY_DEATHS} times soon after it started; giving up")
                self._orders.give_up(EXIT_FAILED)
                return
            await self._pause(_BACKOFF_SECONDS * child.early_deaths)

    def _note_order(self, child: Child, state: Literal["killed", "stopped"]) -> None:
        self._console.say(f"{child.name} was {state}")
        if not child.wanted.is_set():  # else it was started again before it had ended
            child.enter(state)

    def stop(self, child: Child) -> None:
        """Ask a child to stop, and do not start it again until `start`. If it does not stop in time, it is killed."""
        process = child.process
        child.wanted.clear()
        child.ordered = True
        child.enter("stopping" if process is not None else "stopped")
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        asyncio.get_running_loop().call_later(self._drain_seconds + _KILL_MARGIN_SECONDS, _kill, process)

    def kill(self, child: Child) -> None:
        """Kill a child, and do not start it again until `start`."""
        child.wanted.clear()
        child.ordered = True
        child.enter("killed")
        if child.process is not None:
            _kill(child.process)

    def start(self, child: Child) -> None:
        """Start a child that was stopped."""
        if not child.wanted.is_set():
            child.enter("starting")
            child.wanted.set()

    async def _pause(self, seconds: float) -> None:
        """Wait, unless asked to stop before."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)

    async def _run_once(self, child: Child) -> int:
        """Run a child until it ends, and return its exit code; the negative number of a signal if one killed it."""
        reader, writer = os.pipe()
        pipe = FileIO(reader)
        try:
            process = await asyncio.create_subprocess_exec(
                *child.command,
                stdin=asyncio.subprocess.DEVNULL,
                # Not a pipe of asyncio: before Python 3.13, its `wait` waits until every process has closed the pipe.
                stdout=writer,
                stderr=writer,
                env={**self._environ, **child.environ},
                pass_fds=child.descriptors,
                process_group=0,  # only the parent receives Ctrl-C, and stops its children in order
                preexec_fn=self._before_exec,
            )
        except BaseException:
            pipe.close()
            raise
        finally:
            os.close(writer)
        child.process, child.starts = process, child.starts + 1
        if child.ordered:  # while it was being started
            _kill(process)
        else:
            child.enter("starting")
        output = asyncio.create_task(self._copy(pipe, child.name))
        watch = asyncio.create_task(self._announce(child, process.pid))
        stop = asyncio.create_task(self._stop_when_asked(process))
        try:
            return await process.wait()
        finally:
            child.process = None
            watch.cancel()
            stop.cancel()
            if process.returncode is None:
                process.kill()
            await self._clear_up(process.pid, output)
            await asyncio.wait([watch, stop])

    async def _copy(self, pipe: FileIO, name: str) -> None:
        """Copy the output of a child to the console."""
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        with contextlib.closing(transport):
            await self._console.copy(reader, name)

    async def _clear_up(self, group: int, output: asyncio.Task[None]) -> None:
        """Stop the processes that a child left behind, and copy its last output.

        A process that left the child's group is not stopped. It may keep the pipe open, so the wait is bounded.
        """
        signal_group(group, signal.SIGTERM)
        patience = _LAST_WORDS_SECONDS_WHEN_STOPPING if self._stop.is_set() else _LAST_WORDS_SECONDS
        await asyncio.wait([output], timeout=patience)
        signal_group(group, signal.SIGKILL)
        output.cancel()
        await asyncio.wait([output])

    async def _announce(self, child: Child, pid: int) -> None:
        while child.is_ready is not None and not await child.is_ready():
            await self._pause(_READY_RETRY_SECONDS)
            if self._stop.is_set():
                return
        self._console.say(
            f"{child.name} {'is running' if child.is_ready is None else 'is ready'}: pid {pid}{child.details}"
        )
        if child.wanted.is_set() and not child.ordered:
            child.enter("ready")
        child.ready.set()

    async def _stop_when_asked(self, process: asyncio.subprocess.Process) -> None:
        await self._stop.wait()
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._orders.hurry.wait(), self._drain_seconds + _KILL_MARGIN_SECONDS)
            process.kill()


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


async def first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    """Wait until one of the coroutines is done, and cancel the others."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


def bind_to_parent() -> Callable[[], None] | None:
    """Return what a child calls first, so the system kills it when its parent dies. Return None except on Linux.

    Without it, children would outlive a parent that is killed.
    """
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up here, to do as little as possible between fork and exec
    parent = os.getpid()

    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(EXIT_FAILED)

    return bind


def _cause_of_death(exit_code: int) -> str:
    return f"died with exit code {exit_code}" if exit_code >= 0 else f"was killed by {signal.Signals(-exit_code).name}"


def signal_group(group: int, number: signal.Signals) -> None:
    """Send a signal to all processes of a group that still exist."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
