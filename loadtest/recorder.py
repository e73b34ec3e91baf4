"""Writes the raw data of a run as users see it (`loadtest.rawdata` reads it back)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from loadtest.rawdata import CALLS, LEGS, Call, Leg

FLUSH_SECONDS: Final = 1.0
FULL_BYTES: Final = 1 << 20
"""A buffer of this size is written at once."""


def run_clock(began: float) -> Callable[[], float]:
    """Return a clock of the seconds since a run began, which never goes back.

    Args:
        began: the start in seconds since 1970, the same for all processes of the run.
    """
    offset = time.monotonic() - (time.time() - began)
    return lambda: time.monotonic() - offset


class Recorder:
    """Appends legs and calls to their files, from any thread or greenlet; a context manager.

    Lines are collected and written once a second, so no user waits for the disk. Several processes may write to the
    same files, as lines arrive whole.

    Args:
        directory: where the files are; created if it does not exist.
        began: the start of the run, in seconds since 1970.
    """

    def __init__(self, directory: Path, began: float) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.clock = run_clock(began)
        self._files = {Leg: (directory / LEGS).open("ab", 0), Call: (directory / CALLS).open("ab", 0)}
        self._unwritten = {kind: bytearray() for kind in self._files}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._flush_regularly, name="recorder", daemon=True)
        self._thread.start()

    def __enter__(self) -> Recorder:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Write what is left, and close the files."""
        self.close()

    def write(self, record: Leg | Call) -> None:
        """Add one record. After `close` it is dropped, as the run is over."""
        line = msgspec.json.encode(record) + b"\n"
        with self._lock:
            if self._closing.is_set():
                return
            unwritten = self._unwritten[type(record)]
            unwritten += line
            if len(unwritten) >= FULL_BYTES:
                self._flush()

    def close(self) -> None:
        """Write what is left, and close the files."""
        with self._lock:
            if self._closing.is_set():
                return
            self._closing.set()
            self._flush()
            for file in self._files.values():
                file.close()
        self._thread.join()

    def _flush_regularly(self) -> None:
        while not self._closing.wait(FLUSH_SECONDS):
            with self._lock:
                if not self._closing.is_set():
                    self._flush()

    def _flush(self) -> None:
        for kind, unwritten in self._unwritten.items():
            if unwritten:
                self._files[kind].write(unwritten)
                unwritten.clear()
