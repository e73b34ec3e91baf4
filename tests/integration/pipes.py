"""A pipe instead of a log, with a reader that tests control."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


class Pipe:
    """A named pipe for an audit log. Its reader reads nothing until asked to."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._reader: int | None = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def fill(self) -> None:
        writer = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
        _fill(writer)
        os.close(writer)

    def read(self) -> bytes:
        assert self._reader is not None
        read = b""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._reader, 1 << 16):
                read += chunk
        return read

    def lose_reader(self) -> None:
        if self._reader is not None:
            os.close(self._reader)
            self._reader = None

    def gain_reader(self) -> None:
        self._reader = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)


@contextlib.contextmanager
def unread() -> Iterator[int]:
    """Return the writing end of a full pipe without a reader, for the output of a process."""
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
