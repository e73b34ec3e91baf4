"""Types of clocks and random sources, which are passed as arguments wherever they are needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Clock: TypeAlias = Callable[[], float]
"""Returns seconds since the epoch."""

RandomBytes: TypeAlias = Callable[[int], bytes]
"""Returns that many cryptographically strong random bytes."""
