"""Where time and chance come from: an argument wherever they are needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Clock: TypeAlias = Callable[[], float]
"""Seconds since the epoch."""

RandomBytes: TypeAlias = Callable[[int], bytes]
"""So many cryptographically strong random bytes."""
