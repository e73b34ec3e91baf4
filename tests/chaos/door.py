"""A door in front of a server: commands pass one by one, and a test decides when, and what happens around them.

Faults strike at an exact command instead of after a guessed time: before it reaches the server, or after the server has
run it and before anyone knows.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Self

from gateway.storage.lua import shared_scripts, task_scripts
from gateway.storage.lua.task_scripts import Script
from tests.storage.servers import Server

WAIT_SECONDS = 40.0
Matcher = Callable[["Command"], bool]


@dataclass(frozen=True)
class Command:
    """One command, as its client sent it."""

    parts: list[bytes]
    raw: bytes

    def runs(self, script: Script) -> bool:
        return self.parts[:2] in ([b"EVALSHA", script.sha.encode()], [b"EVAL", script.text.encode()])

    def concerns(self, task_id: str) -> bool:
        return any(part.endswith(task_id.encode()) for part in self.parts)


def runs(script: Script) -> Matcher:
    """Match the commands that run a script."""
    return lambda command: command.runs(script)


@dataclass
class Trap:
    """A fault that strikes one command, once.

    Attributes:
        matches: whether it waits for a command.
        after: whether it strikes after the server has run the command, instead of before.
        strike: the fault, while the command or its reply is held.
        cut: whether to close the connection then.
    """

    matches: Matcher
    after: bool
    strike: Callable[[], object]
    cut: bool
    sprung: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        assert self.sprung.wait(WAIT_SECONDS), "no such command came"

    def wait_done(self) -> None:
        assert self.done.wait(WAIT_SECONDS), "the trap did not finish"


class Cut(Exception):
    """The connection ends here."""


class Door:
    """Stands between a server and the clients that get its URL.

    Attributes:
        arrived: every command that reached the door, whether or not it got through.
        passed: every command that the server has answered, with its reply.
        delay: seconds that each command takes longer.
        before_each: a command to run at the server before each other one.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        path = server.directory / "door"
        self.url = f"unix://{path}"
        self.passed: list[tuple[Command, Any]] = []
        self.arrived: list[Command] = []
        self.delay = 0.0
        self.before_each: tuple[str, ...] = ()
        self._traps: list[Trap] = []
        self._lock = threading.Lock()
        self._opened = threading.Event()
        self._opened.set()
        self._closed = False
        self._sockets: set[socket.socket] = set()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(128)

    def __enter__(self) -> Self:
        # No command that a test waits for may turn out to be one that has to be sent again with the script's text.
        for script in [*vars(task_scripts).values(), *vars(shared_scripts).values()]:
            if isinstance(script, Script):
                self._server.ask("SCRIPT", "LOAD", script.text)
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self.open()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            sockets = list(self._sockets)
        for end in sockets:
            _end(end)

    def shut(self) -> None:
        """Let nothing through and answer nothing, like a network that loses every packet."""
        self._opened.clear()

    def open(self) -> None:
        """Let everything through again, including commands from clients that no longer wait for a reply."""
        self._opened.set()

    def trap(self, matches: Matcher, strike: Callable[[], object], *, after: bool = False, cut: bool = False) -> Trap:
        """Do something around the next command that matches."""
        trap = Trap(matches, after, strike, cut)
        with self._lock:
            self._traps.append(trap)
        return trap

    def replies(self, script: Script, task_id: str, *, errors: bool = False) -> list[Any]:
        """Return the server's replies to a script for one task, in order, by default without errors."""
        with self._lock:
            passed = list(self.passed)
        return [
            reply
            for command, reply in passed
            if command.runs(script) and command.concerns(task_id) and (errors or not _is_error(reply))
        ]

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        upstream = socket.socket(socket.AF_UNIX)
        with self._lock:
            self._sockets |= {client, upstream}
        try:
            self._opened.wait()
            upstream.connect(str(self._server.socket))
            with client.makefile("rb") as requests, upstream.makefile("rb") as answers:
                self._pass_all(client, upstream, requests, answers)
        except (OSError, EOFError, ValueError, Cut):
            pass
        finally:
            _end(client)
            _end(upstream)
            with self._lock:
                self._sockets -= {client, upstream}

    def _pass_all(self, client: socket.socket, upstream: socket.socket, requests: BinaryIO, answers: BinaryIO) -> None:
        listening = False
        while True:
            command = _read_command(requests)
            with self._lock:
                self.arrived.append(command)
            if command.parts[0] in (b"SUBSCRIBE", b"PSUBSCRIBE") and not listening:
                listening = True
                threading.Thread(target=self._pump, args=(answers, client), daemon=True).start()
            if listening:  # from here on the server sends messages on its own
                self._opened.wait()
                upstream.sendall(command.raw)
                continue
            client.sendall(self._pass(command, upstream, answers))

    def _pass(self, command: Command, upstream: socket.socket, answers: BinaryIO) -> bytes:
        self._opened.wait()
        if self.delay:
            time.sleep(self.delay)
        if self.before_each:
            self._server.ask(*self.before_each)
        trap = self._take(command)
        if trap is not None and not trap.after:
            self._spring(trap)
        upstream.sendall(command.raw)
        raw = bytearray()
        reply = _read(answers, raw)
        with self._lock:
            self.passed.append((command, reply))
        self._opened.wait()
        if trap is not None and trap.after:
            self._spring(trap)
        if trap is not None:
            trap.done.set()
        return bytes(raw)

    def _take(self, command: Command) -> Trap | None:
        with self._lock:
            found = next((trap for trap in self._traps if trap.matches(command)), None)
            if found is not None:
                self._traps.remove(found)
            return found

    def _spring(self, trap: Trap) -> None:
        if trap.cut:
            trap.strike()
            trap.sprung.set()
            trap.done.set()
            raise Cut
        trap.sprung.set()
        trap.strike()

    def _pump(self, answers: BinaryIO, client: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError, ValueError):
            while True:
                raw = bytearray()
                _read(answers, raw)
                self._opened.wait()
                client.sendall(raw)


def _end(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


def _is_error(reply: Any) -> bool:
    return isinstance(reply, bytes) and reply.startswith(b"-")


def _read_command(stream: BinaryIO) -> Command:
    raw = bytearray()
    parts = _read(stream, raw)
    return Command(parts, bytes(raw))


def _read(stream: BinaryIO, raw: bytearray) -> Any:
    """Read one value of the Redis protocol, version 2; add its bytes to `raw`."""
    line = stream.readline()
    if not line.endswith(b"\r\n"):
        raise EOFError
    raw += line
    kind, text = line[:1], line[1:-2]
    if kind == b"$":
        if text == b"-1":
            return None
        data = stream.read(int(text) + 2)
        if len(data) < int(text) + 2:
            raise EOFError
        raw += data
        return data[:-2]
    if kind == b"*":
        return None if text == b"-1" else [_read(stream, raw) for _ in range(int(text))]
    return int(text) if kind == b":" else line[:-2]
