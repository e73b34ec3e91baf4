"""The history that the store's server wrote to its append-only file, read without our code.

The server writes the commands of each script before it replies, and truncates an incomplete last entry after a kill. So
the file has every phase of every task, over all restarts. A server that is promoted has a file of its own, which
continues that of the former primary at a mark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Final

MARK: Final = "soak:primary:"
"""The beginning of the key that is written when a replica follows. With its number, it is in the files of both."""

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


def read_history(folders: Sequence[Path]) -> dict[str, list[str]]:
    """Return the phases that each task was in, in order, by its id.

    Args:
        folders: of servers that never rewrote their files: the first primary, and the replicas that were promoted.
    """
    phases: dict[str, list[str]] = {}
    for number, folder in enumerate(folders):
        for task_id, command in _changes(folder, number, number + 1):
            fields, values = command[2::2], command[3::2]
            if command[0].upper() == b"HSET" and b"phase" in fields:
                phases.setdefault(task_id, []).append(values[fields.index(b"phase")].decode())
    return phases


def read_lost(folders: Sequence[Path]) -> set[str]:
    """Return the tasks that a primary has changed after its replica had stopped following.

    A replica executes the commands of its primary in the same order, and then others.
    """
    lost: set[str] = set()
    for number, (old, new) in enumerate(pairwise(folders), 1):
        lost |= {task_id for task_id, _ in _unreplicated(_changes(old, number), _changes(new, number))}
    return lost


_Change = tuple[str, list[bytes]]
"""A task, and the command that changed it."""


def _unreplicated(old: Iterator[_Change], new: Iterator[_Change]) -> Iterator[_Change]:
    for change in old:
        if change != next(new, None):
            yield change
            break
    yield from old


def _changes(folder: Path, first: int, end: int = -1) -> Iterator[_Change]:
    """Yield the changes of tasks between two marks; the mark 0 is the beginning of the first file."""
    seen = not first
    for path in sorted(folder.rglob("*.aof")):
        with path.open("rb") as file:
            for command in _commands(file):
                if command[1:2] == [f"{MARK}{end}".encode()]:
                    return
                seen = seen or command[1:2] == [f"{MARK}{first}".encode()]
                if seen and len(command) > 1 and b":task:" in command[1]:
                    yield command[1].rpartition(b":")[2].decode(), command


def _commands(file: BinaryIO) -> Iterator[list[bytes]]:
    """Yield the commands of a file. That of a killed server may end with a part of one."""
    while (head := file.readline()).endswith(b"\n"):
        command = [_argument(file) for _ in range(int(head[1:]))]
        if None in command:
            return
        yield [argument for argument in command if argument is not None]


def _argument(file: BinaryIO) -> bytes | None:
    head = file.readline()
    if not head.endswith(b"\n"):
        return None
    size = int(head[1:])
    argument = file.read(size + 2)
    return argument[:-2] if len(argument) == size + 2 else None


def illegal(phases: list[str]) -> str | None:
    """Return the first forbidden step of a task's history, if there is one."""
    for before, after in zip(["", *phases], phases, strict=False):
        if after not in LEGAL.get(before, frozenset()):
            return f"{before or 'nothing'} → {after}"
    return None
