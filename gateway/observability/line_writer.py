"""Writes log and audit lines from a thread, so that a disk or pipe that stands still holds nothing else up.

Lines wait in a queue bounded in bytes. A line that finds no room is dropped and counted; so are lines that the
destination refuses (disk full, reader gone), unless every line is required: those are kept and tried again.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import sys
import threading
import time
from typing import Final

log = logging.getLogger(__name__)

MAX_QUEUED_BYTES: Final = 4 << 20
"""What waits to be written at most: some seconds of lines of a busy replica."""

PAUSE_SECONDS: Final = 0.01
"""Between two writes: at a thousand lines a second each write takes many of them."""

IDLE_SECONDS: Final = 1.0
"""How often the writer looks by itself: a line that a finalizer puts just as it goes to sleep does not wake it."""

RETRY_SECONDS: Final = 0.25
"""Between two attempts at a destination that refuses."""

STUCK_SECONDS: Final = 1.0
"""A write that takes longer counts as one that cannot be made."""

CLOSE_SECONDS: Final = 2.0
"""What a process that ends waits for its last lines to be written."""


class LineWriter:
    """Appends lines to a file descriptor, in order and whole, from a thread of its own.

    Use `Lines` to write: each is one kind of line, with a count of its own of what was lost.

    Args:
        descriptor: where to.
        name: what the log calls it when it reports that lines cannot be written; "" where that is the log itself.
        max_queued_bytes: what may wait at a time.
        owns_descriptor: whether the writer closes the descriptor after its last line.

    Attributes:
        keeps: whether lines that the destination refuses are kept and tried again, instead of dropped.
        max_queued_bytes: as given.
    """

    def __init__(
        self,
        descriptor: int,
        *,
        name: str = "",
        max_queued_bytes: int = MAX_QUEUED_BYTES,
        owns_descriptor: bool = False,
    ) -> None:
        self.keeps = False
        self.max_queued_bytes = max_queued_bytes
        self._descriptor = descriptor
        self._owns_descriptor = owns_descriptor
        self._name = name
        # Entered for each line, and unlike a condition without a call. A signal handler or a finalizer may log while
        # its thread is inside.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._queue: list[tuple[Lines, bytes]] = []
        self._queued_bytes = 0
        self._is_idle = False
        self._is_refused = False
        self._writing_since: float | None = None
        self._broken_line = False
        self._closing = threading.Event()
        self._worker = threading.Thread(target=self._run, name="log writer", daemon=True)
        self._worker.start()

    def put(self, source: Lines, line: bytes, limit_bytes: int) -> bool:
        """Queue one line; return False if there is no room for it. It never waits.

        Any thread may call this, and so may a signal handler or a finalizer, whatever it interrupts.

        Args:
            source: counts the line if it is lost later.
            line: the whole line, its line break included.
            limit_bytes: what may wait at a time, this line included.
        """
        with self._lock:
            if self._queued_bytes + len(line) > limit_bytes:
                return False
            self._queue.append((source, line))
            self._queued_bytes += len(line)
            if self._is_idle:
                self._is_idle = False
                self._changed.notify()
        return True

    @property
    def is_writable(self) -> bool:
        """Whether lines reach their destination now, and there is room for more."""
        since = self._writing_since
        is_stuck = since is not None and time.monotonic() - since > STUCK_SECONDS
        return not (self._is_refused or is_stuck or self._queued_bytes > self.max_queued_bytes // 2)

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Write what waits, but no longer than `seconds`, then end. Lines that come later are lost."""
        self._closing.set()
        with self._changed:
            self._changed.notify()
        self._worker.join(seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._closing.is_set():
                    self._is_idle = True
                    self._changed.wait(IDLE_SECONDS)
                self._is_idle = False
                batch, self._queue = self._queue, []
            if not batch:
                break
            self._write_out(batch)
            self._closing.wait(PAUSE_SECONDS)
        if self._owns_descriptor:  # closed here, since `close` does not wait for a write that is stuck
            os.close(self._descriptor)

    def _write_out(self, batch: list[tuple[Lines, bytes]]) -> None:
        left = b"".join([line for _, line in batch])
        size = len(left)
        if self._broken_line:  # of an earlier batch, only a part of a line was written
            left = b"\n" + left
        while left:
            self._writing_since = time.monotonic()
            written = self._write_some(left)
            self._writing_since = None
            if written is not None:
                self._broken_line = left[written - 1 : written] != b"\n"
                left = left[written:]
            elif not self.keeps or self._closing.is_set():
                _count_lost(batch, len(left))
                break
            else:
                self._closing.wait(RETRY_SECONDS)
        with self._lock:
            self._queued_bytes -= size

    def _write_some(self, lines: bytes) -> int | None:
        """Return how many bytes the destination took, None if it refuses."""
        try:
            written = os.write(self._descriptor, lines)
        except OSError as error:
            self._note(error.strerror or type(error).__name__)
            return None
        self._note(None)
        return written

    def _note(self, problem: str | None) -> None:
        """Note whether the destination takes lines, and report when that has changed."""
        was_refused, self._is_refused = self._is_refused, problem is not None
        if not self._name or was_refused == self._is_refused:
            return
        if problem is None:
            log.warning("lines are written again", extra={"to": self._name})
        else:
            log.error("lines cannot be written", extra={"to": self._name, "reason": problem})


class Lines:
    """One kind of line that a `LineWriter` writes.

    Args:
        writer: writes them.
        share: of the room in its queue that these lines may fill, so that others always find some.

    Attributes:
        lost: how many were not written.
    """

    def __init__(self, writer: LineWriter, *, share: float = 1.0) -> None:
        self.lost = 0
        self._writer = writer
        self._limit_bytes = int(writer.max_queued_bytes * share)

    def write(self, line: bytes) -> None:
        """Have one whole line written, or counted as lost. Never waits."""
        if not self._writer.put(self, line, self._limit_bytes):
            self.lost += 1

    def close(self) -> None:
        """Write what waits, then end the writer; see `LineWriter.close`."""
        self._writer.close()

    @property
    def is_writable(self) -> bool:
        """Whether lines reach their destination now, and there is room for more."""
        return self._writer.is_writable


def _count_lost(batch: list[tuple[Lines, bytes]], unwritten_bytes: int) -> None:
    for source, line in reversed(batch):
        if unwritten_bytes <= 0:
            return
        unwritten_bytes -= len(line)
        source.lost += 1


@functools.cache
def stderr_writer() -> LineWriter:
    """Return the one writer of this process to its standard error, which log and audit log may share."""
    return closed_at_exit(LineWriter(sys.stderr.fileno()))


def closed_at_exit(writer: LineWriter) -> LineWriter:
    """Have a writer write its last lines when the process ends; return it."""
    atexit.register(writer.close)
    return writer


def close_before_exit(writer: LineWriter) -> None:
    """Close a writer of `closed_at_exit` now."""
    atexit.unregister(writer.close)
    writer.close()
