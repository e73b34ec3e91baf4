"""Where lines are written: a descriptor that stays, or a file that is followed by its name."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
import time
from enum import StrEnum
from pathlib import Path
from typing import Final

from typing_extensions import override

log = logging.getLogger(__name__)

SUCCESSOR_SECONDS: Final = 0.25
"""How long to wait for a new file after the old one was moved. A program that rotates files creates the new one itself,
and takes one that is already there for a mistake."""

_POLL_SECONDS: Final = 0.01
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_MODE: Final = 0o640


class Fate(StrEnum):
    """The end of a file, or of its name, that lines were written to."""

    MOVED = "moved"
    DELETED = "deleted"
    TRUNCATED = "truncated"


class Destination:
    """A descriptor that lines are written to, and that stays open, such as standard error.

    Attributes:
        is_open: whether there is anything to write to.
    """

    def __init__(self, descriptor: int) -> None:
        self.is_open = True
        self._descriptor = descriptor

    def write(self, data: bytes) -> int:
        """Write some bytes, and return how many; raise `OSError` if none could be written."""
        return os.write(self._descriptor, data)

    def look(self, *, at_once: bool = False) -> Fate | None:
        """Return what has happened to the file since the last look, and open it again if necessary.

        With `at_once`, do not wait for another program to replace a moved file.
        """
        del at_once
        return None

    def close(self) -> None:
        """Close what was opened here."""


class FollowedFile(Destination):
    """A file to append to. If its path leads to another file or to none, it is opened again, and created if necessary.

    While that fails, lines go to the moved file. A deleted file is not open, because nobody can read its lines. Pipes
    and devices are opened only once. The log calls the file by its `name`.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: str, name: str) -> None:
        super().__init__(os.open(path, _FLAGS, _MODE))
        self._path = Path(path)
        self._name = name
        self._end = 0
        self._was_truncated = False
        self._problem = ""

    @override
    def write(self, data: bytes) -> int:
        if not self.is_open:
            raise OSError(errno.ENOENT, self._problem)
        written = super().write(data)
        mine = os.fstat(self._descriptor)
        if stat.S_ISREG(mine.st_mode):
            if mine.st_nlink == 0:
                raise OSError(errno.ENOENT, "the file was deleted")
            end = os.lseek(self._descriptor, 0, os.SEEK_CUR)
            self._was_truncated |= end - written < self._end
            self._end = end
        return written

    @override
    def look(self, *, at_once: bool = False) -> Fate | None:
        if not self.is_open:
            self._open_again()
            return None
        mine = self._status()
        if mine is not None and not stat.S_ISREG(mine.st_mode):
            return None
        if mine is None or mine.st_nlink == 0:
            self.close()
            self._open_again()
            return Fate.DELETED
        if self._was_truncated or mine.st_size < self._end:
            self._was_truncated, self._end = False, mine.st_size
            return Fate.TRUNCATED
        there = self._await_successor(0.0 if at_once else SUCCESSOR_SECONDS)
        if there is not None and os.path.samestat(mine, there):
            return None
        return Fate.MOVED if self._open_again() else None

    @override
    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            with contextlib.suppress(OSError):
                os.close(self._descriptor)

    def _status(self) -> os.stat_result | None:
        """Return the status of the open file, None if it has none any more, as on a network file system."""
        try:
            return os.fstat(self._descriptor)
        except OSError:
            return None

    def _await_successor(self, seconds: float) -> os.stat_result | None:
        """Return the file that the path leads to; None if there is none after some seconds."""
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError):
                return self._path.stat()
            if time.monotonic() >= deadline:
                return None
            time.sleep(_POLL_SECONDS)

    def _open_again(self) -> bool:
        try:
            # A pipe without a reader must not block this thread; the next attempt may find one.
            descriptor = os.open(self._path, _FLAGS | os.O_NONBLOCK, _MODE)
        except OSError as error:
            self._note(error.strerror or type(error).__name__)
            return False
        os.set_blocking(descriptor, True)
        self.close()
        self._descriptor, self._end, self._was_truncated, self._problem = descriptor, 0, False, ""
        self.is_open = True
        log.info("log file opened again", extra={"to": self._name, "file": str(self._path)})
        return True

    def _note(self, problem: str) -> None:
        if problem != self._problem and self.is_open:
            log.warning("moved log file cannot be replaced", extra={"to": self._name, "reason": problem})
        self._problem = problem
