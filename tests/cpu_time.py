"""CPU times of this process, for ratios within one run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def least_seconds(work: Callable[[T], object], value: T) -> float:
    """Return the CPU time that work on a value takes, disturbed as little as possible: the least of five runs."""
    taken = []
    for _ in range(5):
        began = time.process_time()
        work(value)
        taken.append(time.process_time() - began)
    return min(taken)
