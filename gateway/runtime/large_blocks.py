"""Large blocks of memory, which go back to the system when they are free."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from typing import Final

LARGE_BYTES: Final = 2**20
"""Larger blocks are kept apart from the heap."""

_M_MMAP_THRESHOLD: Final = -3


def return_large_blocks() -> None:
    """Let the C library give each large block back to the system as soon as it is free.

    By default, glibc keeps blocks of up to 32 MiB once some were free. Bodies of many sizes then leave holes between
    each other, which together take as much memory as the bodies. Other C libraries have no such option.
    """
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError):
            ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
