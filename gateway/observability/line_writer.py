"""Writes log and audit lines from a thread, so a stalled disk or pipe blocks nothing else.

Lines wait in a queue with a limit in bytes. A line that does not fit is dropped and counted. A line that the
destination refuses, because the disk is full or the reader is gone, is dropped too, or retried if every line is
required.
"""

from __future__ import annotations

import atexit
import functools
import logging
import sys
import threading
import time
from collections import deque
from typing import Final

from gateway.observability.destinations import Destination, Fate

log = logging.getLogger(__name__)

MAX_QUEUED_BYTES: Final = 4 << 20
"""The size of the queue: a few seconds of a busy replica's lines."""

PAUSE_SECONDS: Final = 0.01
"""The pause between two writes. It lets one write take many lines, such as ten at a thousand lines a second."""

IDLE_SECONDS: Final = 1.0
"""How often an idle writer checks the queue and the destination. A line that a finalizer adds at the wrong moment does
not wake it."""

COPY_SECONDS: Final = 1.0
"""How long it may take to truncate or delete a file after its last bytes were copied. Lines of this time are lost."""

RETRY_SECONDS: Final = 0.25
"""The pause between two attempts if the destination refuses lines."""

STUCK_SECONDS: Final = 1.0
"""A write that takes longer counts as failing."""

CLOSE_SECONDS: Final = 2.0
"""How long an ending process waits for its last lines to be written."""


class LineWriter:
    """Appends whole lines to a destination, in order, from its own thread, and closes it after the last line.

    Write through `Lines`, which counts the lost lines of each kind separately. The log uses `name` to report that lines
    cannot be written; "" is for the destination of the log itself.

    Attributes:
        keeps: whether to keep and retry lines that the destination refuses, instead of dropping them.
    """

    def __init__(
        self,
        destination: Destination,
        *,
        name: str = "",
        max_queued_bytes: int = MAX_QUEUED_BYTES,
    ) -> None:
        self.keeps = False
        self.max_queued_bytes = max_queued_bytes
        self._destination = destination
        self._name = name
        # A lock that is entered for each line, without the Python call that entering a condition costs. It is reentrant
        # because a signal handler or a finalizer may log while its own thread holds it.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._queue: list[tuple[Lines, bytes]] = []
        self._queued_bytes = 0
        self._is_idle = False
        self._is_refused = False
        self._writing_since: float | None = None
        self._broken_line = False
        self._asked_to_look = False
        self._looked_at = time.monotonic()
        self._recent: deque[tuple[float, list[Lines]]] = deque()
        self._closing = threading.Event()
        self._worker = threading.Thread(target=self._run, name="log writer", daemon=True)
        self._worker.start()

    def put(self, source: Lines, line: bytes, limit_bytes: int) -> bool:
        """Queue one line, or return False if there is no room for it. Never waits.

        Any thread may call this, and so may a signal handler or a finalizer, whatever it interrupts. `source` counts
        the line if it is lost later. The line includes its line break. `limit_bytes` is how full the queue may become
        with it.
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
        """Whether lines currently reach their destination, and there is room for more."""
        since = self._writing_since
        is_stuck = since is not None and time.monotonic() - since > STUCK_SECONDS
        is_refused = self._is_refused or not self._destination.is_open
        is_dead = not (self._worker.is_alive() or self._closing.is_set())
        return not (is_refused or is_stuck or is_dead or self._queued_bytes > self.max_queued_bytes // 2)

    def look(self) -> None:
        """Make the writer check now whether its file was moved. Any thread may call this."""
        with self._changed:
            self._asked_to_look = True
            self._changed.notify()

    def flush(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Wait for at most `seconds` until every queued line is written or lost; return whether that is so."""
        deadline = time.monotonic() + seconds
        while self._queued_bytes:
            if time.monotonic() >= deadline:
                return False
            time.sleep(PAUSE_SECONDS)
        return True

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Write the queued lines, for at most `seconds`, then end. Later lines are lost."""
        self._closing.set()
        with self._changed:
            self._changed.notify()
        self._worker.join(seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not (self._queue or self._asked_to_look or self._closing.is_set()):
                    self._is_idle = True
                    self._changed.wait(IDLE_SECONDS)
                self._is_idle = False
                batch, self._queue = self._queue, []
            if batch:
                self._write_out(batch)
            elif self._closing.is_set():
                break
            else:
                self._follow()
            self._closing.wait(PAUSE_SECONDS)
        self._recent.clear()
        self._destination.close()  # here, because `close` does not wait for a stuck write

    def _write_out(self, batch: list[tuple[Lines, bytes]]) -> None:
        left = whole = b"".join([line for _, line in batch])
        if self._broken_line:  # an earlier batch ended in the middle of a line
            left = b"\n" + left
        while left:
            if self._follow():  # to another file, where a line that was cut short starts again
                left = whole[whole.rfind(b"\n", 0, max(len(whole) - len(left), 0)) + 1 :]
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
        if not left:
            self._recent.append((time.monotonic(), [source for source, _ in batch]))
        with self._lock:
            self._queued_bytes -= len(whole)

    def _follow(self) -> bool:
        """Check the destination, and return whether it is another file, or an emptied one, since the last time."""
        since, self._looked_at = self._looked_at - COPY_SECONDS, time.monotonic()
        while self._recent and self._recent[0][0] < since:
            self._recent.popleft()
        at_once, self._asked_to_look = self._asked_to_look, False
        fate = self._destination.look(at_once=at_once)
        if fate is None:
            return False
        if fate != Fate.MOVED:
            self._count_vanished(fate.value)
        self._recent.clear()
        return True

    def _count_vanished(self, fate: str) -> None:
        """Count the latest lines as lost, because a copy of their file may lack them."""
        vanished = [source for _, sources in self._recent for source in sources]
        for source in vanished:
            source.lost += 1
        if vanished:
            log.warning("lines may be lost", extra={"to": self._name, "lines": len(vanished), "file": fate})

    def _write_some(self, lines: bytes) -> int | None:
        """Return how many bytes were written; None if the destination refuses them."""
        try:
            written = self._destination.write(lines)
        except OSError as error:
            self._note(error.strerror or type(error).__name__)
            return None
        self._note(None)
        return written

    def _note(self, problem: str | None) -> None:
        """Remember whether the destination accepts lines, and log when that changes."""
        was_refused, self._is_refused = self._is_refused, problem is not None
        if not self._name or was_refused == self._is_refused:
            return
        if problem is None:
            log.warning("lines are written again", extra={"to": self._name})
        else:
            log.error("lines cannot be written", extra={"to": self._name, "reason": problem})


class Lines:
    """One kind of line that a `LineWriter` writes.

    They may fill a `share` of its queue; the rest stays free for other kinds. `lost` counts those that were not
    written.
    """

    def __init__(self, writer: LineWriter, *, share: float = 1.0) -> None:
        self.lost = 0
        self._writer = writer
        self._limit_bytes = int(writer.max_queued_bytes * share)

    def write(self, line: bytes) -> None:
        """Queue one whole line, or count it as lost. Never waits."""
        if not self._writer.put(self, line, self._limit_bytes):
            self.lost += 1

    def close(self) -> None:
        """Write the queued lines, then end the writer; see `LineWriter.close`."""
        self._writer.close()

    @property
    def is_writable(self) -> bool:
        """Whether lines currently reach their destination, and there is room for more."""
        return self._writer.is_writable


def _count_lost(batch: list[tuple[Lines, bytes]], unwritten_bytes: int) -> None:
    for source, line in reversed(batch):
        if unwritten_bytes <= 0:
            return
        unwritten_bytes -= len(line)
        source.lost += 1


@functools.cache
def stderr_writer() -> LineWriter:
    """Return the process's only writer to standard error, which the log and the audit log may share."""
    return closed_at_exit(LineWriter(Destination(sys.stderr.fileno())))


def closed_at_exit(writer: LineWriter) -> LineWriter:
    """Close a writer when the process ends, and return it."""
    atexit.register(writer.close)
    return writer


def close_before_exit(writer: LineWriter) -> None:
    """Close a writer now that `closed_at_exit` would close later."""
    atexit.unregister(writer.close)
    writer.close()
