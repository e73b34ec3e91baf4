"""Lets another process set the number of users: a Locust shape that reads it from a file."""

from __future__ import annotations

import os
from pathlib import Path

from locust import LoadTestShape

from loadtest.users_process import USERS_FILE

SPAWN_RATE = 100
"""How many users start or stop per second."""


class Steered(LoadTestShape):
    """Keeps as many users as the file says; 0 ends the run."""

    def tick(self) -> tuple[int, float] | None:
        """Return the number of users, and how fast they start or stop."""
        users = int(Path(os.environ[USERS_FILE]).read_text(encoding="ascii"))
        return (users, SPAWN_RATE) if users > 0 else None
