"""A terminal for a program that draws forms: tmux keeps its screen, and a test reads and types."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from loadtest.cluster import ClusterError, wait_until
from loadtest.cluster.common import find_program

SECONDS: Final = 60
PRESS_SECONDS: Final = 2
MOST_PRESSES: Final = 10
COLUMNS, LINES = 140, 60


class Terminal:
    """A program in a terminal of its own.

    Args:
        directory: where the program starts.
        environ: the whole environment of the program.
        socket: where tmux listens; its path must be short.
    """

    def __init__(self, command: Sequence[str], directory: Path, environ: Mapping[str, str], socket: Path) -> None:
        self._tmux = [find_program("tmux", package="tmux"), "-S", str(socket), "-f", os.devnull]
        self._command = command
        self._directory = directory
        self._environ = {**environ, "TERM": "xterm-256color"}

    def __enter__(self) -> Self:
        size = ["-x", str(COLUMNS), "-y", str(LINES)]
        self._run("new-session", "-d", *size, "exec " + shlex.join(self._command))
        self._run("set-option", "-g", "remain-on-exit", "on")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run("kill-server")

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._tmux, *arguments],
            cwd=self._directory,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        return done.stdout

    def shown(self) -> str:
        """Return the screen as one line, with one blank between words."""
        return " ".join(self._run("capture-pane", "-p").split())

    def wait_for(self, text: str) -> None:
        """Wait until the screen shows a text."""
        self._wait(lambda: text in self.shown(), f"the terminal to show {text!r}", SECONDS)

    def press_until_gone(self, key: str, text: str) -> None:
        """Press a key, and again while the screen still shows a text: a form ignores keys when it is new."""
        for _ in range(MOST_PRESSES):
            self.press(key)
            with contextlib.suppress(ClusterError):
                return self._wait(lambda: text not in self.shown(), f"{text!r} to go", PRESS_SECONDS)
        raise ClusterError(f"the terminal still shows {text!r}:\n{self._run('capture-pane', '-p')}")

    def _wait(self, condition: Callable[[], bool], what: str, seconds: float) -> None:
        try:
            wait_until(condition, what, seconds)
        except ClusterError as error:
            raise ClusterError(f"{error}:\n{self._run('capture-pane', '-p')}") from None

    def type(self, text: str) -> None:
        """Type a text."""
        self._run("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        """Press keys, by the names that tmux has for them."""
        for key in keys:
            self._run("send-keys", key)
