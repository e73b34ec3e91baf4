"""A real deployment: replicas, a worker and what their tools note, and the clients of its users."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

from gateway.auth.tokens import mint
from loadtest.cluster import wait_until
from tests.integration.fleet import Fleet
from tests.storage.servers import Server
from tests.wires.draft.client import DraftClient

AUDIENCE: Final = "tests"
SECRET: Final = "a secret that only these tests know, 32 bytes or more"
LONGEST_POLL_SECONDS: Final = 0.02


class Deployment(Fleet):
    """Replicas that know their callers by tokens, and, with a store, one worker called w1."""

    def __init__(
        self,
        directory: Path,
        server: Server | None,
        settings: Mapping[str, str] | None = None,
        own: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self._has_store = server is not None
        environ = {
            "GATEWAY_TOOLS": "gateway.demo,"
            "tests.wires.draft.tools,tests.wires.draft.task_tools,tests.wires.draft.streaming_tools,tests.wires.relays",
            "GATEWAY_AUDIENCE": AUDIENCE,
            "GATEWAY_AUTH": "jwt",
            "GATEWAY_JWT_SECRET": SECRET,
            "GATEWAY_TASK_PARTITIONS": "2",
            "TEST_DIRECTORY": str(directory),
            **({} if server is None else {"GATEWAY_REDIS_URL": server.url}),
            **(settings or {}),
        }
        replicas = own or {"r1": {}, "r2": {}}
        super().__init__(directory, environ, names=list(replicas), own=replicas)

    def __enter__(self) -> Self:
        """Start everything, and wait until it serves."""
        super().__enter__()
        if self._has_store:
            self.add_worker("w1")
        return self

    @property
    def urls(self) -> list[str]:
        """The endpoints of all replicas."""
        return [replica.url for replica in self.replicas]

    def client(self, principal: str, **options: Any) -> DraftClient:
        """Return a client of a user, which turns to all replicas in turn. `scopes` is what its token grants."""
        urls, scopes = options.pop("urls", self.urls), options.pop("scopes", ())
        token = mint(SECRET, principal, AUDIENCE, scopes=scopes)
        return DraftClient(urls, token=token, **{"longest_poll_seconds": LONGEST_POLL_SECONDS, **options})

    @contextlib.contextmanager
    def worked_by(self, name: str, **settings: str) -> Iterator[None]:
        """Let another worker, with settings of its own, stand in for w1 while the context is open."""
        usual = self.worker("w1")
        usual.terminate()
        try:
            other = self.add_worker(name, **settings)
            try:
                yield
            finally:
                self.workers.remove(other)
                other.stop()
        finally:
            usual.restart()

    def open(self, gate: str) -> None:
        """Let the tools that wait for a gate continue."""
        (self.directory / gate).touch()

    def lines(self, name: str) -> list[str]:
        """Return what tools have noted under a name."""
        path = self.directory / name
        return path.read_text().splitlines() if path.exists() else []

    def wait_for_lines(self, name: str, count: int = 1) -> list[str]:
        """Wait until tools have noted so much under a name, and return it."""
        wait_until(lambda: len(self.lines(name)) >= count, f"{count} lines in {name}")
        return self.lines(name)
