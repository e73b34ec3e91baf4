"""One owner has more tasks than a worker has places, all in one partition, but no other owner waits for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from loadtest.cluster import wait_until
from tests.workers.conftest import serving
from tests.workers.site import Site

pytestmark = pytest.mark.slow

SECRET = "a secret that only these tests know, 32 bytes"
TASKS, PLACES, MOST = 80, 32, 28
SHORT_TASKS = 400
OTHERS = 6
"""One owner gets three of the four places that each worker has left."""

SOON_SECONDS = 15.0
"""Far longer than a look at the queue takes. The tasks of the greedy owner do not end on their own."""


@pytest.fixture(scope="module")
def served() -> Iterator[Site]:
    """A replica that knows its users, with one partition for all of them."""
    with serving(GATEWAY_AUTH="jwt", GATEWAY_JWT_SECRET=SECRET, GATEWAY_TASK_PARTITIONS="1") as served:
        yield served


def as_user(site: Site, name: str) -> Site:
    return site.as_user(SECRET, name)


def is_done_soon(site: Site, task: str) -> bool:
    def is_done() -> bool:
        return bool(site.get(task)["status"] == "completed")

    wait_until(is_done, "the task of another owner", SOON_SECONDS)
    return True


def put_back(worker: Any) -> float:
    return float(worker.metric("gateway_tasks_put_back_total"))


def test_eighty_long_tasks_of_one_owner_block_no_other_owner_of_the_partition(site: Site) -> None:
    greedy, early, late = (as_user(site, name) for name in ("greedy", "early", "late"))
    for _ in range(TASKS):
        greedy.create("wait")
    behind = early.create("say", text="behind all of them")
    worker = site.worker("w1", "--concurrency", str(PLACES), "--metrics-port", "0")

    assert is_done_soon(early, behind)
    site.wait_for_line("started", MOST)
    assert is_done_soon(late, late.create("say", text="after they have begun"))
    assert len(site.lines("started")) == MOST

    # No task is moved back while there is no other owner to make way for.
    before = put_back(worker)
    time.sleep(1)
    assert put_back(worker) == before

    site.open()
    wait_until(lambda: len(site.lines("started")) == TASKS, "all tasks of the greedy owner", 60)


def test_a_backlog_of_short_tasks_that_keep_a_worker_busy_blocks_no_other_owner(site: Site) -> None:
    greedy, other = as_user(site, "greedy"), as_user(site, "other")
    for _ in range(SHORT_TASKS):
        greedy.create("compute", ms=20)
    site.worker("w1", "--concurrency", str(PLACES))
    site.wait_for_line("computed")
    assert is_done_soon(other, other.create("say", text="behind all of them"))
    assert len(site.lines("computed")) < SHORT_TASKS / 2
    wait_until(lambda: len(site.lines("computed")) == SHORT_TASKS, "all tasks of the greedy owner", 60)


def test_two_workers_share_what_one_owner_has_and_both_keep_places_for_others(site: Site) -> None:
    greedy, other = as_user(site, "greedy"), as_user(site, "other")
    for _ in range(TASKS):
        greedy.create("wait")
    for name in ("w1", "w2"):
        site.worker(name, "--concurrency", str(PLACES))
    site.wait_for_line("started", 2 * MOST)
    waiting = [other.create("wait", gate="other") for _ in range(OTHERS)]
    site.wait_for_line("started", 2 * MOST + OTHERS)
    site.open("other")
    assert all(is_done_soon(other, task) for task in waiting)
    site.open()
    wait_until(lambda: len(site.lines("started")) == TASKS + OTHERS, "all tasks", 60)


def test_without_authentication_all_places_may_be_taken(start_site: Callable[..., Site]) -> None:
    site = start_site(GATEWAY_TASK_PARTITIONS="1")
    for _ in range(10):
        site.create("wait")
    site.worker("w1", "--concurrency", "8")
    site.wait_for_line("started", 8)
    site.open()
    site.wait_for_line("started", 10)
