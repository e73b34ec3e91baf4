"""The standard streams of a process that was started without some of them, as by `2>&-` or a supervisor."""

from __future__ import annotations

import os
import sys


def open_standard_streams() -> None:
    """Open the standard streams that are closed; text for stderr then goes to stdout.

    Otherwise the first socket or file would get the number of a closed stream, and what is written there.
    """
    if sys.stdin is None:
        _open_null(0)
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    if sys.stdout is None:
        _open_null(1)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        os.dup2(1, 2)
        sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)


def drop_output() -> None:
    """Drop everything that is written to stdout from now on, because its reader has gone."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _open_null(number: int) -> None:
    """Open the null device under the number of a stream. Children inherit it."""
    opened = os.open(os.devnull, os.O_RDWR)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
    os.set_inheritable(number, True)
