"""A pipe in the place of a log, whose reader does what a test wants."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


class Pipe:
    """A named pipe for an audit log. Its reader reads nothing until it is told to."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._reader: int | None = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def fill(self) -> None:
        """Leave no room in it."""
        writer = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
        _fill(writer)
        os.close(writer)

    def read(self) -> bytes:
        """Take out what is in it."""
        assert self._reader is not None
        read = b""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._reader, 1 << 16):
                read += chunk
        return read

    def lose_reader(self) -> None:
        """Let the reader die."""
        if self._reader is not None:
            os.close(self._reader)
            self._reader = None

    def gain_reader(self) -> None:
        """Let another reader come."""
        self._reader = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)


@contextlib.contextmanager
def unread() -> Iterator[int]:
    """Return the writing end of a pipe that is full and that nobody reads, for the output of a process."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    _fill(writing)
    os.set_blocking(writing, True)
    try:
        yield writing
    finally:
        os.close(writing)
        os.close(reading)


def _fill(writing: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
