"""The history that the store's server wrote to its append-only file, read without our code.

The server writes the commands of each script before it replies, and truncates an incomplete last entry after a kill. So
the file has every phase of every task, over all restarts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

OVER: Final = frozenset({"done", "cancelled"})

LEGAL: Final[Mapping[str, frozenset[str]]] = {
    "": frozenset({"queued"}),
    "queued": frozenset({"running", "cancelled"}),
    "running": frozenset({"running", "queued", "waiting", "done", "cancelled"}),
    "waiting": frozenset({"queued", "cancelled"}),
    "done": frozenset(),
    "cancelled": frozenset(),
}
"""Phase → the phases that may follow; the empty phase stands before the first."""


def read_history(directory: Path) -> dict[str, list[str]]:
    """Return the phases that each task was in, in order, by its id.

    Args:
        directory: of a server that never rewrote its file.
    """
    phases: dict[str, list[str]] = {}
    for path in sorted(directory.rglob("*.aof")):
        with path.open("rb") as file:
            for command in _commands(file):
                if command[0].upper() == b"HSET" and b":task:" in command[1] and b"phase" in command[2::2]:
                    task_id = command[1].rpartition(b":")[2].decode()
                    phases.setdefault(task_id, []).append(command[3::2][command[2::2].index(b"phase")].decode())
    return phases


def _commands(file: BinaryIO) -> Iterator[list[bytes]]:
    """Yield the commands of a file whose server was stopped cleanly."""
    while head := file.readline():
        yield [file.read(int(file.readline()[1:]) + 2)[:-2] for _ in range(int(head[1:]))]


def illegal(phases: list[str]) -> str | None:
    """Return the first forbidden step of a task's history, if there is one."""
    for before, after in zip(["", *phases], phases, strict=False):
        if after not in LEGAL.get(before, frozenset()):
            return f"{before or 'nothing'} → {after}"
    return None
