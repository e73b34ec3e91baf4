"""A gateway that resumes segments one too early at its first replica, and one too late at all others."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from gateway.cli import main as cli
from gateway.wires.draft import tasks as draft_tasks

read = draft_tasks.read_last_seq_nr  # type: ignore[attr-defined]
amiss = -1 if "r1" in sys.argv else 1


def read_amiss(params: Mapping[str, Any]) -> int | None:
    last = read(params)
    return None if last is None else last + amiss


draft_tasks.read_last_seq_nr = read_amiss  # type: ignore[attr-defined]

if __name__ == "__main__":
    sys.exit(cli.main())
