"""A clock that tests set."""

from __future__ import annotations


class Clock:
    """Time in seconds that moves only when a test moves it."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
