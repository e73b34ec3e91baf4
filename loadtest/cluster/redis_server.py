"""A real Redis server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import redis

from loadtest.cluster.common import HOST, LoggedProcess, find_program

PATIENCE_SECONDS = 5.0
"""How long a command may wait for its reply."""


class RedisServer(LoggedProcess):
    """The system's Redis or Valkey, at the same port over all its restarts. The files in its directory stay.

    Every write is on disk before it is acknowledged, unless the options say otherwise.

    Args:
        directory: where its files and its log are.
        options: further options of its command line; they override those given here.
        program: the server's path, if not the system's.

    Raises:
        ClusterError: the system has no such server.
    """

    def __init__(self, directory: Path, *options: str, program: str | None = None) -> None:
        super().__init__("redis", {}, directory / "redis.log")
        self.directory = directory
        self.options = options
        self.password = ""
        self._program = program or find_program("redis-server", "valkey-server", package="redis-server")
        self.port = self._keep_port()

    @property
    def url(self) -> str:
        """The value for `GATEWAY_REDIS_URL`."""
        return f"redis://:{self.password}@{HOST}:{self.port}" if self.password else f"redis://{HOST}:{self.port}"

    def _command(self) -> Sequence[str]:
        where = ["--bind", HOST, "--port", str(self.port), "--dir", str(self.directory.resolve())]
        durable = ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        return [self._program, *where, *durable, "--daemonize", "no", *self.options]

    def wait_ready(self) -> None:
        """Wait until it has loaded its data and answers."""
        self._wait_started(self.is_ready)

    def is_ready(self) -> bool:
        """Return whether it answers now."""
        try:
            return bool(self.ask("PING"))
        except redis.AuthenticationError:
            return True
        except redis.RedisError:
            return False

    def ask(self, *command: str) -> object:
        """Send one command, and return the reply as redis-py returns it."""
        password = self.password or None
        with redis.Redis(host=HOST, port=self.port, password=password, socket_timeout=PATIENCE_SECONDS) as client:
            return client.execute_command(*command)
