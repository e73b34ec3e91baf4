"""Processes behind HAProxy are paused for shorter and for longer than any client waits, and then continue."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from loadtest.cluster import Cluster, RedisServer, Replica, Worker, wait_until
from tests.chaos.customers import CAN, Customers, answer_of, call
from tests.integration.raw import META, request
from tests.workers.conftest import pytest_runtest_makereport

__all__ = ["pytest_runtest_makereport"]

SHORT_SECONDS, LONG_SECONDS = 3.0, 35.0
LEASE_SECONDS = 10
"""Between the two."""

TASKS, CALLS, CHARGES = 8, 40, 20
UNANSWERED_SECONDS = 25
"""The longest that a call to a frozen replica may take: five times as long as its checks need to notice."""


@pytest.fixture
def customers(tmp_path: Path) -> Iterator[Customers]:
    """Two replicas and two workers behind HAProxy."""
    environ = {
        "GATEWAY_TOOLS": "tests.chaos.tools",
        "GATEWAY_TASK_LEASE_SECONDS": str(LEASE_SECONDS),
        "GATEWAY_TASK_PARTITIONS": "2",
        "TEST_DIRECTORY": str(tmp_path),
    }
    with Cluster(tmp_path / "cluster", replicas=2, workers=2, redis=True, environ=environ) as cluster:
        customers = Customers(cluster, tmp_path)
        yield customers
        for process in (cluster.replicas[0], cluster.workers[0], customers.redis):
            process.resume()
        customers.pool.shutdown()
        customers.http.close()


def stand_still(seconds: float, *processes: Replica | Worker | RedisServer) -> None:
    """Pause processes for a time, from now on."""
    for process in processes:
        process.pause()

    def go_on() -> None:
        for process in processes:
            process.resume()

    threading.Timer(seconds, go_on).start()


def timed_call(customers: Customers) -> tuple[httpx.Response, float]:
    """Make a call without the store; return its answer and how many seconds it took."""
    began = time.monotonic()
    return customers.post(call("hello")), time.monotonic() - began


def status(customers: Customers, task: str) -> str:
    found = customers.insist(request("tasks/get", {"taskId": task, "_meta": {**META, **CAN}}))
    return str(found["status"])


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("what", "seconds"),
    [
        ("the store", LONG_SECONDS),
        ("a replica and a worker", SHORT_SECONDS),
        ("a replica and a worker", LONG_SECONDS),
    ],
)
def test_what_was_begun_before_or_meanwhile_is_done_once(customers: Customers, what: str, seconds: float) -> None:
    cluster = customers.cluster
    tasks = [customers.insist(call("work", {"gate": "gate"}))["taskId"] for _ in range(TASKS)]
    states = [customers.insist(call("charge"))["requestState"] for _ in range(CHARGES)]
    wait_until(lambda: len(customers.lines("at the gate")) == TASKS, "all tasks to be at the gate")
    frozen = cluster.workers[0].name
    held = customers.lines("at the gate").count(frozen)

    stand_still(seconds, *((customers.redis,) if what == "the store" else (cluster.replicas[0], cluster.workers[0])))
    calls = [customers.pool.submit(timed_call, customers) for _ in range(CALLS)]
    payers = [f"payer-{number}" for number in range(CHARGES)]
    paying = [
        customers.pool.submit(customers.insist, call("charge", requestState=state, inputResponses=answer_of(payer)))
        for payer, state in zip(payers, states, strict=True)
    ]
    for worker in cluster.workers:
        (customers.directory / f"gate {worker.name}").touch()

    answered = [future.result() for future in calls]
    assert {response.status_code for response, _ in answered} == {200}
    assert max(took for _, took in answered) < UNANSWERED_SECONDS
    assert [paid.result()["content"][0]["text"] for paid in paying] == [f"{payer} paid" for payer in payers]
    assert sorted(customers.lines("charged")) == sorted(payers)
    wait_until(lambda: all(status(customers, task) == "completed" for task in tasks), "all tasks to be completed")
    wait_until(customers.is_idle, "empty queues")
    steps = Counter(customers.lines("steps"))
    assert (steps["0"], steps["1"]) == (TASKS, TASKS)
    # The step that was running when a lease ended may run again, once.
    lost = TASKS if what == "the store" else held
    assert TASKS <= steps["2"] <= TASKS + (lost if seconds > LEASE_SECONDS else 0)
