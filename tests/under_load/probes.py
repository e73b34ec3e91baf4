"""A probe that checks continuously whether everything still answers."""

from __future__ import annotations

import http.client
import json
import threading
from collections import Counter
from typing import Self
from urllib.parse import urlsplit

from loadtest.cluster import Cluster, ClusterError, Replica
from tests.integration.raw import headers_of, request
from tests.under_load.clients import until

PERIOD_SECONDS = 0.05
PATIENCE_SECONDS = 20.0


class Probes:
    """Asks each replica for its health and metrics, and the cluster for `server/discover`, until the block ends.

    Attributes:
        answers: how often each was answered as it should be.
        problems: all other answers, and what was not answered.
        rounds: how often everything was asked.
        leaving: the draining replicas, which need not answer.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.answers: Counter[str] = Counter()
        self.problems: list[str] = []
        self.rounds = 0
        self.leaving: set[str] = set()
        self._cluster = cluster
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        """Start asking."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop asking."""
        self._ended.set()
        self._thread.join()

    async def ask_anew(self) -> None:
        """Wait until every target was asked once more."""
        asked = self.rounds
        await until(lambda: self.rounds >= asked + 2, "a round of probes")

    def on_event(self, event: str, name: str) -> None:
        """Learn from `Cluster.rolling_restart` which replicas drain and which are back."""
        if event == "leaving":
            self.leaving.add(name)
        elif event == "ready":
            self.leaving.remove(name)

    def _run(self) -> None:
        while not self._ended.wait(PERIOD_SECONDS):
            self._ask("server/discover", self._cluster.url)
            for replica in list(self._cluster.replicas):
                self._ask_replica(replica)
            self.rounds += 1

    def _ask_replica(self, replica: Replica) -> None:
        if replica.name in self.leaving:
            return
        try:
            metrics_url = replica.metrics_url
        except ClusterError:
            return  # it has just stopped
        host, port = replica.address
        for path in ("/healthz", "/readyz"):
            self._ask(path, f"http://{host}:{port}{path}", replica.name)
        self._ask("/metrics", metrics_url, replica.name)

    def _ask(self, what: str, url: str, replica: str | None = None) -> None:
        try:
            status = _status(what, url)
        except (OSError, http.client.HTTPException) as error:
            status = repr(error)
        if status == "200":
            self.answers[what] += 1
        elif replica is None or replica not in self.leaving:
            self.problems.append(f"{what} at {replica or 'the cluster'}: {status}")


def _status(what: str, url: str) -> str:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE_SECONDS)
    try:
        if what == "server/discover":
            message = request(what)
            connection.request("POST", parts.path, json.dumps(message), headers_of(message))
        else:
            connection.request("GET", parts.path)
        response = connection.getresponse()
        response.read()
        return str(response.status)
    finally:
        connection.close()
