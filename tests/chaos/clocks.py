"""Clocks that tests set, one for each process: libfaketime between the process and its system."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from loadtest.cluster.common import find_program

CACHED_SECONDS = 1
"""A process reads the setting of its clock at most this often."""


class ShiftedClock:
    """The clock of one process, which shows the system's time or some hours more or less.

    Monotonic time does not change, just as when an operator sets a clock.

    Args:
        path: a file for it.
        shift: `+0`, or as in `-1h` or `+20s`.
    """

    def __init__(self, path: Path, shift: str = "+0") -> None:
        self._path = path
        self.set(shift)

    @staticmethod
    def clean_up() -> None:
        """Remove the shared memory of killed processes."""
        for left in Path("/dev/shm").glob("*faketime_*"):
            if not Path(f"/proc/{left.name.rpartition('_')[2]}").exists():
                left.unlink(missing_ok=True)

    def set(self, shift: str) -> None:
        """Set the clock, also while its process runs."""
        fresh = self._path.with_suffix(".new")
        fresh.write_text(f"{shift}\n")
        fresh.rename(self._path)

    @property
    def environ(self) -> Mapping[str, str]:
        """Return the environment to start its process with."""
        faketime = find_program("faketime", package="faketime")
        own = subprocess.run([faketime, "-f", "+0", "env"], check=True, capture_output=True, text=True).stdout
        (library,) = (line.partition("=")[2] for line in own.splitlines() if line.startswith("LD_PRELOAD="))
        return {
            "LD_PRELOAD": library,
            "FAKETIME_TIMESTAMP_FILE": str(self._path),
            "FAKETIME_CACHE_DURATION": str(CACHED_SECONDS),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
