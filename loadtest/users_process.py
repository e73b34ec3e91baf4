"""The users of a run: Locust, in a separate process."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from loadtest.cluster.common import ClusterError, LoggedProcess, wait_until
from loadtest.rawdata import LEGS
from loadtest.scenario import Scenario

USERS_FILE = "LOADTEST_USERS_FILE"
"""The variable that names the file with the number of users."""

LOCUSTFILES = "loadtest/locustfile.py,loadtest/steering.py"
LAST_CALLS_SECONDS = 10
"""How long users may take to finish their calls at the end of the run."""

_LOG_CHARACTERS = 3000


class Users(LoggedProcess):
    """Locust without its web page. Users call from the start of the process until `stop`.

    Args:
        scenario: defines the users.
        directory: where they write raw data and their log.
        url: the MCP endpoint that they call.
        began: when the run began, in seconds since the epoch.
    """

    def __init__(self, scenario: Scenario, directory: Path, url: str, began: float) -> None:
        self._directory = directory.resolve()
        self._count_path = self._directory / "users"
        self._mix = scenario.users
        self._url = url
        environ = {
            **scenario.user_environ,
            USERS_FILE: str(self._count_path),
            "LOADTEST_RECORD": str(self._directory),
            "LOADTEST_BEGAN": str(began),
        }
        super().__init__("users", environ, directory / "users.log")

    def _command(self) -> Sequence[str]:
        classes = {f"{kind.capitalize()}User": count for kind, count in self._mix.items()}
        weights = [{"user_class_name": name, "weight": count} for name, count in classes.items()]
        options = [
            "--headless",
            "--only-summary",
            "--exit-code-on-error",
            "0",
            "--stop-timeout",
            f"{LAST_CALLS_SECONDS}",
        ]
        files = ["-f", LOCUSTFILES, "--host", self._url, "--config-users", json.dumps(weights)]
        return [sys.executable, "-m", "locust", *files, *options, *classes]

    def start(self) -> None:
        """Start with as many users as the scenario says."""
        self.multiply(1)
        super().start()

    def wait_ready(self) -> None:
        """Wait until the first leg has ended."""
        legs = self._directory / LEGS
        self._wait_started(lambda: legs.exists() and legs.stat().st_size > 0)

    def multiply(self, times: float) -> None:
        """Set the number of users to this multiple of the initial number; 0 stops them."""
        new = self._count_path.with_suffix(".new")
        new.write_text(str(round(sum(self._mix.values()) * times)), encoding="ascii")
        new.replace(self._count_path)

    def check(self) -> None:
        """Check that they still call.

        Raises:
            ClusterError: they do not.
        """
        if not self.alive:
            raise ClusterError(f"the users' process ended before the run did:\n{self.log_text()[-_LOG_CHARACTERS:]}")

    def stop(self) -> None:
        """Let them finish their calls, and end the process in any case."""
        if self.alive:
            self.multiply(0)
            with contextlib.suppress(ClusterError):
                wait_until(lambda: not self.alive, "the users to finish", 2 * LAST_CALLS_SECONDS)
        super().stop()
