"""Replicas that freeze, or that drain with open calls, behind HAProxy with the shipped configuration."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from loadtest.cluster import Cluster, Replica, wait_until
from tests.integration.raw import Answer, post, tool_call
from tests.workers.conftest import pytest_runtest_makereport

__all__ = ["pytest_runtest_makereport"]

CALLERS = 8
NOTICE_SECONDS = 1
UNANSWERED_SECONDS = 25
"""The longest that a request to a frozen replica may take: five times as long as its checks need to notice."""


class Site:
    """Replicas behind a balancer, and the files that their tools write."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        environ = {
            "GATEWAY_TOOLS": "tests.chaos.tools,tests.integration.tools",
            "GATEWAY_DRAIN_NOTICE_SECONDS": str(NOTICE_SECONDS),
            "TEST_DIRECTORY": str(directory),
        }
        self.cluster = Cluster(directory, replicas=3, redis=True, environ=environ)

    def echo(self) -> tuple[Answer, float]:
        """Make a call, and return its answer and how many seconds it took."""
        began = time.monotonic()
        return post(self.cluster, tool_call("echo", {"text": "hello"})), time.monotonic() - began

    def holders(self) -> list[str]:
        """Return the replicas that hold a call, in order."""
        path = self.directory / "holding"
        return path.read_text().split() if path.exists() else []

    def held(self, pool: ThreadPoolExecutor) -> tuple[Future[Answer], Replica]:
        """Begin a call that waits for its gate; return the call and the replica that holds it."""
        before = len(self.holders())
        call = pool.submit(post, self.cluster, tool_call("wait_here", {"gate": "gate"}))
        wait_until(lambda: len(self.holders()) > before, "a replica to hold the call")
        return call, self.cluster[self.holders()[before]]

    def open_gate(self) -> None:
        (self.directory / "gate").touch()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    with site.cluster:
        yield site


def test_a_frozen_replica_costs_seconds_and_no_call(site: Site) -> None:
    frozen = site.cluster.replicas[0]
    balancer = site.cluster.balancer
    assert balancer is not None
    with ThreadPoolExecutor(CALLERS) as pool:
        assert all(answer.status == 200 for answer, _ in pool.map(lambda _: site.echo(), range(50)))
        frozen.pause()
        swallowed = [pool.submit(site.echo) for _ in range(CALLERS * 6)]
        results = [future.result() for future in swallowed]
        balancer.wait_down(frozen.name)
        later = list(pool.map(lambda _: site.echo(), range(50)))
        frozen.resume()
        balancer.wait_up(frozen.name)
    assert [answer.status for answer, _ in results + later] == [200] * len(results + later)
    assert max(seconds for _, seconds in results) < UNANSWERED_SECONDS
    assert max(seconds for _, seconds in later) < UNANSWERED_SECONDS / 5


def test_a_call_that_a_frozen_replica_had_begun_is_run_by_another_one_once(site: Site) -> None:
    with ThreadPoolExecutor(1) as pool:
        call, holder = site.held(pool)
        holder.pause()
        wait_until(lambda: len(site.holders()) == 2, "another replica to hold the call")
        site.open_gate()
        answer = call.result()
        holder.resume()
    assert answer.status == 200
    first, second = site.holders()
    assert (first, answer.text) == (holder.name, f"held by {second}")
    assert second != first


def test_what_a_leaving_replica_still_does_is_not_cut_off(site: Site) -> None:
    with ThreadPoolExecutor(1) as pool:
        call, holder = site.held(pool)
        holder.signal(signal.SIGTERM)
        assert site.cluster.balancer is not None
        site.cluster.balancer.wait_down(holder.name)
        wait_until(lambda: post(holder, tool_call("echo", {"text": "hello"})).status == 503, "the notice to be over")
        # For longer than the balancer needs to notice that a replica is gone.
        until = time.monotonic() + UNANSWERED_SECONDS / 5
        while time.monotonic() < until:
            assert site.echo()[0].status == 200
        site.open_gate()
        answer = call.result()
    assert (answer.status, answer.text) == (200, f"held by {holder.name}")
    assert holder.wait() == 0
