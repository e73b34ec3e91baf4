"""A task that would store more than is allowed fails with the reason, and is not retried."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import httpx
import pytest

from loadtest.cluster import Worker
from tests.workers.conftest import serving
from tests.workers.site import Site

pytestmark = pytest.mark.slow

LIMIT = 65_536

WORDS = {
    "result": "The result",
    "step": "The result of step 'loot'",
    "checkpoint": "The checkpoint",
    "segments": "The output of the task",
    "question": "The list of the task's questions",
    "failure": "The output of the task",
}


@pytest.fixture(scope="module")
def with_low_limit() -> Iterator[Site]:
    with serving(GATEWAY_TASK_MAX_RESULT_BYTES=str(LIMIT), GATEWAY_TASK_LEASE_SECONDS="1") as served:
        yield served


@pytest.fixture
def limited(with_low_limit: Site, join: Callable[[Site], Site]) -> Site:
    """A site with a low limit and leases of a second."""
    return join(with_low_limit)


def failure(site: Site, task: str) -> str:
    result = site.wait_for(task, "completed")["result"]
    assert result["isError"] is True
    (block,) = result["content"]
    return str(block["text"])


def test_a_value_that_is_too_large_ends_the_task_at_once_and_is_named(limited: Site) -> None:
    worker = limited.worker("w1")
    for count, (kind, words) in enumerate(WORDS.items(), 1):
        task = limited.create("produce", kind=kind, size=LIMIT)
        assert re.fullmatch(rf"{words} is too large: \d+ bytes; the limit is {LIMIT}", failure(limited, task))
        assert len(limited.lines("started")) == count
    logged = worker.wait_for_log("task tried to store more than is allowed", count=len(WORDS))
    assert [record["tool"] for record in logged] == ["produce"] * len(WORDS)
    assert "Traceback" not in worker.log_text()


def test_a_segment_more_counts_with_the_result_that_it_is_a_part_of(limited: Site) -> None:
    limited.worker("w1")
    task = limited.create("produce", kind="segments", size=LIMIT // 2 - 400)
    result = limited.wait_for(task, "completed")["result"]
    assert [len(block["text"]) for block in result["content"]] == [LIMIT // 4 - 200] * 4 + [len("done")]
    assert "isError" not in result or result["isError"] is False


@pytest.fixture(scope="module")
def refused() -> Iterator[tuple[Site, Worker]]:
    """A site with a worker, whose server accepts at most a mebibyte at once."""
    with serving() as site:
        site.server.ask("CONFIG", "SET", "proto-max-bulk-len", str(2**20))
        yield site, site.worker("w1")


@pytest.mark.parametrize("kind", ["result", "step", "segments", "checkpoint", "question"])
def test_a_value_that_the_server_refuses_ends_the_task_too(refused: tuple[Site, Worker], kind: str) -> None:
    site, worker = refused
    before = len(site.lines("started"))
    task = site.create("produce", kind=kind, size=3_000_000)
    assert "more than the task store accepts" in failure(site, task)
    assert site.lines("started")[before:] == ["w1"]
    assert "task store is not available" not in worker.log_text()
    assert site.text(site.create("say", text="hello")) == "hello"


QUOTA = 1_000_000
ARGUMENT = "x" * 100_000
"""Sealing makes it a third larger, so seven fit into the quota."""


@pytest.fixture(scope="module")
def with_quota() -> Iterator[Site]:
    with serving(GATEWAY_TASK_BYTES_PER_PRINCIPAL=str(QUOTA)) as served:
        yield served


@pytest.fixture
def narrow(with_quota: Site, join: Callable[[Site], Site]) -> Site:
    """A site whose callers may store a million bytes each."""
    return join(with_quota)


def test_a_caller_whose_tasks_keep_too_many_bytes_creates_no_more_until_one_is_gone(narrow: Site) -> None:
    def call() -> httpx.Response:
        return narrow.post("tools/call", {"name": "say", "arguments": {"text": ARGUMENT}})

    created = [call() for _ in range(7)]
    assert all("taskId" in response.json()["result"] for response in created)
    refused = call()
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.json()["error"]["code"] == -31003
    assert refused.json()["error"]["message"] == f"The tasks of one caller may store no more than {QUOTA} bytes"
    (replica,) = narrow.replicas
    assert replica.metric("gateway_requests_refused_total", reason="too_many_task_bytes") == 1

    narrow.request("tasks/cancel", {"taskId": created[0].json()["result"]["taskId"]})
    assert "taskId" in call().json()["result"]


def test_a_running_task_that_finds_no_room_fails_with_the_reason(narrow: Site) -> None:
    worker = narrow.worker("w1")
    for kind in ("step", "segments", "checkpoint", "question", "result"):
        text = failure(narrow, narrow.create("produce", kind=kind, size=QUOTA))
        assert text.startswith(f"The tasks of one caller may store {QUOTA} bytes in total")
    assert narrow.text(narrow.create("say", text="hello")) == "hello"
    assert "Traceback" not in worker.log_text()
