"""The side effects of tools, one JSON object per line in a file that no fault reaches."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

DIRECTORY = "SOAK_DIRECTORY"
"""The environment variable with the directory of the file."""

FILE = "effects"


class Effect(msgspec.Struct, frozen=True):
    """One thing that a tool did.

    Attributes:
        what: `leg`, when it began to run; `step`, a side effect; `unit`, a part of a computation.
        order: the order that it belongs to.
        flow: the call's id, as its tool sees it.
        key: the idempotency key of a side effect, or the number of a unit.
    """

    what: str
    order: str
    flow: str
    key: str = ""


def note(effect: Effect) -> None:
    """Add a line with one system call, so a killed process leaves a whole line or none."""
    line = msgspec.json.encode(effect) + b"\n"
    descriptor = os.open(Path(os.environ[DIRECTORY]) / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


def read_effects(directory: Path) -> Iterator[Effect]:
    """Yield the recorded effects in order."""
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Effect)
    path = directory / FILE
    for line in path.read_bytes().splitlines() if path.exists() else ():
        yield decoder.decode(line)
