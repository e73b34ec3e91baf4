"""A terminal as the reader of a page has it: folder and environment carry over from one command to the next."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from loadtest.cluster import wait_until

PROMPT: Final = "> "
LEFT_OUT: Final = "…"
SECONDS: Final = 240
_THEN_REMEMBER: Final = 'eval "$1"; pwd > "$2/folder"; env -0 > "$2/environ"'


def pattern_of(shown: str) -> str:
    """Return the pattern of an output that a page shows; `…` stands for anything."""
    return ".*".join(re.escape(part) for part in shown.split(LEFT_OUT))


@dataclass
class Program:
    """A running command. Its output goes to a file, so that it never waits for a reader.

    Attributes:
        typed: the lines that were typed, each with its place in the output.
    """

    process: subprocess.Popen[bytes]
    log: Path
    typed: list[tuple[int, str]] = field(default_factory=list)

    def output(self) -> str:
        """Return what it has printed so far, together with what was typed."""
        text = self.log.read_text()
        for position, line in reversed(self.typed):
            text = text[:position] + line + text[position:]
        return text

    def wait_for_prompt(self) -> None:
        """Wait until it asks for a line, after those that were typed."""
        before = self.typed[-1][0] if self.typed else 0
        wait_until(lambda: self.ended or self.log.read_text()[before:].endswith(PROMPT), "a prompt", SECONDS)
        assert not self.ended, self.output()

    def type(self, line: str) -> None:
        self.wait_for_prompt()
        self.typed.append((len(self.log.read_text()), f"{line}\n"))
        assert self.process.stdin
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def finish(self) -> None:
        """Wait for its end; it must have succeeded."""
        self._wait()
        assert self.process.returncode == 0, self.output()

    def stop(self) -> None:
        """Ask it to stop, unless it has ended."""
        self.process.terminate()
        self._wait()

    def fail(self) -> None:
        """Wait for its end; it must not have succeeded."""
        self._wait()
        assert self.process.returncode != 0, self.output()

    def _wait(self) -> None:
        self.process.wait(SECONDS)
        assert self.process.stdin
        self.process.stdin.close()


class Terminal:
    """Runs commands, one after another."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.folder = folder
        self.environ = dict(environ)
        self._memory = Path(tempfile.mkdtemp(dir=folder))

    def start(self, command: str) -> Program:
        log = Path(tempfile.mkstemp(dir=self._memory)[1])
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-ec", _THEN_REMEMBER, "terminal", command, str(self._memory)],
                cwd=self.folder,
                env=self.environ,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
            )
        return Program(process, log)

    def run(self, command: str) -> str:
        """Run a command that asks nothing, and return what it prints."""
        program = self.start(command)
        self.finish(program)
        return program.output()

    def finish(self, program: Program) -> None:
        """Wait for the end of a command, and take over the folder and the environment that it leaves."""
        program.finish()
        self.folder = Path((self._memory / "folder").read_text().rstrip("\n"))
        variables = (self._memory / "environ").read_text().rstrip("\0").split("\0")
        self.environ = dict(variable.split("=", 1) for variable in variables)
