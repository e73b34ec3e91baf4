"""Clients of a cluster behind its balancer that send once, or until they are answered."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import redis

from loadtest.cluster import Cluster
from tests.integration.raw import META, META_CAPABILITIES, headers_of, tool_call

CAN: dict[str, Any] = {
    META_CAPABILITIES: {"elicitation": {"form": {}}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
}
AT_ONCE = 100
PATIENCE_SECONDS = 60.0


def call(name: str, arguments: dict[str, Any] | None = None, /, **params: Any) -> dict[str, Any]:
    return tool_call(name, arguments, _meta={**META, **CAN}, **params)


def answer_of(name: str) -> dict[str, Any]:
    return {"name": {"action": "accept", "content": {"name": name}}}


class Customers:
    """Send requests to a cluster, many at a time."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        assert cluster.redis is not None
        self.cluster, self.redis, self.directory = cluster, cluster.redis, directory
        self.http = httpx.Client(timeout=PATIENCE_SECONDS, limits=httpx.Limits(max_connections=200))
        self.pool = ThreadPoolExecutor(AT_ONCE)

    def post(self, message: dict[str, Any]) -> httpx.Response:
        """Send a request once."""
        return self.http.post(self.cluster.url, json=message, headers=headers_of(message))

    def insist(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a request until it is answered, as often as its refusals allow."""
        ends_at = time.monotonic() + PATIENCE_SECONDS
        while True:
            response = self.post(message)
            if response.status_code not in {503, 504}:
                body: dict[str, Any] = response.json()
                assert "result" in body, body
                return dict(body["result"])
            assert time.monotonic() < ends_at, response.text
            time.sleep(int(response.headers["retry-after"]))

    def pause(self, seconds: float) -> None:
        """Pause the store for a time, from now on."""
        self.redis.pause()
        threading.Timer(seconds, self.redis.resume).start()

    def lines(self, name: str) -> list[str]:
        path = self.directory / name
        return path.read_text().splitlines() if path.exists() else []

    def is_idle(self) -> bool:
        """Return whether no task is queued or running."""
        with self.redis_client() as client:
            return all(client.xlen(key) == 0 for key in client.scan_iter(match="*:queue"))

    def redis_client(self) -> redis.Redis:
        return redis.Redis(port=self.redis.port)
