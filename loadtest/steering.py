"""Lets another process say how many users there are: a shape of Locust's that reads their number from a file."""

from __future__ import annotations

import os
from pathlib import Path

from locust import LoadTestShape

from loadtest.users_process import USERS_FILE

SPAWN_RATE = 100
"""How many users come or go in a second."""


class Steered(LoadTestShape):
    """As many users as the file says now; when it says 0 the run is over."""

    def tick(self) -> tuple[int, float] | None:
        """Return how many users there shall be, and how fast they come or go."""
        users = int(Path(os.environ[USERS_FILE]).read_text(encoding="ascii"))
        return (users, SPAWN_RATE) if users > 0 else None
