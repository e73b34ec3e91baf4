"""A site behind a door, and the accounts that have to balance after every fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import redis

from gateway.storage.lua.task_scripts import FINISH
from gateway.storage.redis_keys import RedisKeys
from loadtest.cluster import wait_until
from tests.chaos.door import Door
from tests.storage.deployments import keys_without_lifetime
from tests.workers.site import Site

PARTITIONS = 2
KEYS = RedisKeys("tests", PARTITIONS)


@dataclass(frozen=True)
class Ground:
    """A site, and the door to its store."""

    site: Site
    door: Door

    def result(self, task_id: str) -> list[str]:
        """Wait until a task is completed, and return the texts of its result."""
        return self.site.text(task_id).splitlines()

    def hello(self, replica: int = 0) -> str:
        """Make a call of two legs without the store."""
        call: dict[str, Any] = {"name": "hello", "arguments": {}}
        asked = self.site.request("tools/call", call, replica)
        answers = {"name": {"action": "accept", "content": {"name": "Ada"}}}
        call |= {"requestState": asked["requestState"], "inputResponses": answers}
        return str(self.site.request("tools/call", call, replica)["content"][0]["text"])

    def refused(self, method: str, replica: int = 0, **params: Any) -> bool:
        """Return whether a request gets the refusal of an unreachable store, which only asks for a retry."""
        response = self.site.post(method, params, replica)
        if "result" in response.json():
            return False
        told = response.status_code, response.json()["error"]["code"]
        assert told in {(503, -31001), (504, -31004)}, response.text
        assert int(response.headers["retry-after"]) >= 1
        return True

    def queued(self) -> int:
        """Count the queued and running tasks, whichever worker holds them."""
        counts = [self.site.server.ask("XLEN", KEYS.queue(number)) for number in range(PARTITIONS)]
        return sum(int(str(count)) for count in counts)

    def segments(self, task_id: str) -> list[str]:
        """Return the numbers of the segments that a task has stored."""
        with redis.Redis(unix_socket_path=str(self.site.server.socket), decode_responses=True) as client:
            (key,) = client.scan_iter(match=f"*:segments:*:{task_id}", count=1000)
            return [number for number, _ in client.xrange(key)]

    def assert_balanced(self, *tasks: str) -> None:
        """Check that every task has completed once, and that nothing is left to run."""
        for task in tasks:
            assert self.site.get(task)["status"] == "completed"
            assert self.door.replies(FINISH, task).count(b"ok") == 1
        wait_until(lambda: self.queued() == 0, "empty queues")
        assert keys_without_lifetime(self.site.server.url) == []
