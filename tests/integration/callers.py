"""Callers that keep a replica busy, and know how many of their calls ran."""

from __future__ import annotations

import contextlib
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

import httpx
import msgspec

from loadtest.cluster import Replica, wait_until
from tests.integration.raw import SECONDS, headers_of, tool_call

ECHO = tool_call("echo", {"text": "hello"})


class Callers:
    """Threads that call one after another until they are stopped.

    Attributes:
        statuses: how many calls ended with each HTTP status.
        broken: the calls that got no answer.
    """

    def __init__(self, replica: Replica, token: str | None) -> None:
        self.statuses: Counter[int] = Counter()
        self.broken: list[str] = []
        self.stopped = threading.Event()
        self._ends: list[float] = []
        self._replica = replica
        self._headers = headers_of(ECHO) | ({} if token is None else {"authorization": f"Bearer {token}"})

    @property
    def ran(self) -> int:
        """How many calls ran so far."""
        return self.statuses[200]

    @property
    def most_in_a_second(self) -> int:
        """How many calls ran in the busiest second."""
        ends = sorted(self._ends)
        return max(number + 1 - bisect_left(ends, end - 1) for number, end in enumerate(ends))

    def call_on(self) -> None:
        """Call until stopped."""
        body = msgspec.json.encode(ECHO)
        with httpx.Client(timeout=SECONDS, trust_env=False, verify=False) as client:
            while not self.stopped.is_set():
                try:
                    status = client.post(self._replica.url, content=body, headers=self._headers).status_code
                    self.statuses[status] += 1
                    if status == 200:
                        self._ends.append(time.monotonic())
                except httpx.HTTPError as error:
                    self.broken.append(repr(error))

    def wait_for(self, further: int) -> None:
        """Wait until so many further calls have ended."""
        goal = self.statuses.total() + further
        wait_until(lambda: self.statuses.total() >= goal or bool(self.broken), f"{further} calls")


@contextlib.contextmanager
def calling(replica: Replica, *, threads: int = 2, token: str | None = None) -> Iterator[Callers]:
    """Call a tool all the time while the context is open."""
    callers = Callers(replica, token)
    running = [threading.Thread(target=callers.call_on) for _ in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield callers
    finally:
        callers.stopped.set()
        for thread in running:
            thread.join(SECONDS)
