"""What tools have done outside, one JSON object a line in a file that no fault reaches: the world's own ledger."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

DIRECTORY = "SOAK_DIRECTORY"
"""The environment variable that tells tools where the file is."""

FILE = "effects"


class Effect(msgspec.Struct, frozen=True):
    """One thing that a tool did.

    Attributes:
        what: `leg`, when it began to run; `step`, a side effect; `unit`, a part of a computation.
        order: what it was called for.
        flow: the call, as its tool knows it.
        key: what exactly: the idempotency key of a side effect, the number of a unit.
    """

    what: str
    order: str
    flow: str
    key: str = ""


def note(effect: Effect) -> None:
    """Add a line with one system call, so that a process that is killed leaves a whole line or none."""
    line = msgspec.json.encode(effect) + b"\n"
    descriptor = os.open(Path(os.environ[DIRECTORY]) / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


def read_effects(directory: Path) -> Iterator[Effect]:
    """Yield what was noted, in order."""
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Effect)
    path = directory / FILE
    for line in path.read_bytes().splitlines() if path.exists() else ():
        yield decoder.decode(line)
