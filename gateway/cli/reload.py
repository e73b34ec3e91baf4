"""`gateway reload`: makes the replicas and workers of this machine read their files again."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

PROCESSES: Final = Path("/proc")

_COMMANDS: Final = frozenset({"serve", "worker"})
_STARTS: Final = ("gateway", "python")
_CAUGHT: Final = re.compile(r"^SigCgt:\s*([0-9a-f]+)$", re.MULTILINE)


def reload_processes() -> list[int]:
    """Send SIGHUP to every replica and worker that this user may signal, and return their process ids."""
    reached = []
    for pid in _gateways():
        try:
            os.kill(pid, signal.SIGHUP)
        except (ProcessLookupError, PermissionError):
            continue
        reached.append(pid)
    return reached


def _gateways() -> Iterator[int]:
    for folder in PROCESSES.iterdir():
        if folder.name.isdecimal():
            try:
                is_ours = _runs_gateway(folder) and _catches_hangup(folder)
            except OSError:  # it has ended, or belongs to somebody else
                continue
            if is_ours:
                yield int(folder.name)


def _runs_gateway(folder: Path) -> bool:
    """Return whether a process was started as `gateway serve` or `gateway worker`, or with `python -m`.

    Programs that start it, such as `timeout`, have the same words, and may pass the signal on a second time.
    """
    words = (folder / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    names = [word.rpartition("/")[2] for word in words]
    if not names[0].startswith(_STARTS):
        return False
    return any(name == "gateway" and following in _COMMANDS for name, following in pairwise(names))


def _catches_hangup(folder: Path) -> bool:
    """Return whether SIGHUP does not end a process: an earlier release, or one that only starts, does not catch it."""
    caught = _CAUGHT.search((folder / "status").read_text())
    return caught is not None and bool(int(caught[1], 16) & 1 << (signal.SIGHUP - 1))
