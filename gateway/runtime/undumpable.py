"""Hides what is in a process from other processes of its user."""

from __future__ import annotations

import ctypes
import sys
from typing import Final

_PR_SET_DUMPABLE: Final = 4  # linux/prctl.h


def hide_from_others() -> None:
    """Let no other process of the same user read the variables and the memory of this one, on Linux.

    The programs that a gateway runs could read its secrets in `/proc` otherwise, however clean their own environment
    is. Debuggers are shut out too, and there are no core dumps.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
