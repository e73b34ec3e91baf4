"""Pauses that vary, so that processes which began together do not come back together."""

from __future__ import annotations

from random import SystemRandom
from typing import Final

_RANDOM: Final = SystemRandom()


def varied(seconds: float, least: float = 0.5) -> float:
    """Return a random pause between the share `least` of these seconds and all of them."""
    return seconds * _RANDOM.uniform(least, 1.0)
