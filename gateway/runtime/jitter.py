"""Pauses that vary, so that processes which began together do not come back together."""

from __future__ import annotations

import random


def varied(seconds: float, least: float = 0.5) -> float:
    """Return a random pause between the share `least` of these seconds and all of them."""
    return seconds * random.uniform(least, 1.0)  # noqa: S311 - it spreads load, and protects no secret
