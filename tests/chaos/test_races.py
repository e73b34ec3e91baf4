"""Two replicas do the same thing at once: both requests are held at the store's door until both are there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from gateway.storage.lua.task_scripts import ANSWER, CANCEL, FINISH, Script
from loadtest.cluster import wait_until
from tests.chaos.door import WAIT_SECONDS, runs
from tests.chaos.ground import Ground


@pytest.fixture
def pair(start: Callable[..., Ground]) -> Ground:
    """Two replicas, and leases that do not end here."""
    return start("r1", "r2", GATEWAY_TASK_LEASE_SECONDS="30")


def at_once(ground: Ground, *requests: tuple[Script, Callable[[], None]]) -> None:
    """Let requests meet at the door, then let them all in."""
    meeting = threading.Barrier(len(requests), timeout=WAIT_SECONDS)
    for script, _ in requests:
        ground.door.trap(runs(script), meeting.wait)
    with ThreadPoolExecutor() as pool:
        sent: list[Future[None]] = [pool.submit(request) for _, request in requests]
        for future in sent:
            future.result()
    assert not meeting.broken


def waiting_task(ground: Ground) -> str:
    ground.site.worker("w1")
    task = ground.site.create("ask")
    ground.site.wait_for(task, "input_required")
    return task


def test_the_same_update_counts_once(pair: Ground) -> None:
    site, task = pair.site, waiting_task(pair)
    at_once(
        pair,
        (ANSWER, lambda: site.answer(task, "name", 0, name="Ada")),
        (ANSWER, lambda: site.answer(task, "name", 1, name="Ada")),
    )
    assert pair.result(task) == ["part 0 for Ada"]
    assert site.lines("legs") == ["w1", "w1"]
    assert site.lines("answered") == ["Ada"]
    pair.assert_balanced(task)


def test_of_two_different_updates_one_counts(pair: Ground) -> None:
    site, task = pair.site, waiting_task(pair)
    at_once(
        pair,
        (ANSWER, lambda: site.answer(task, "name", 0, name="Ada")),
        (ANSWER, lambda: site.answer(task, "name", 1, name="Grace")),
    )
    (text,) = pair.result(task)
    assert text in {"part 0 for Ada", "part 0 for Grace"}
    assert site.lines("answered") == [text.split()[-1]]
    pair.assert_balanced(task)


def test_the_same_cancellation_succeeds_twice(pair: Ground) -> None:
    site = pair.site
    site.worker("w1")
    task = site.create("work", gate="gate")
    site.wait_for_line("at the gate")
    at_once(
        pair,
        (CANCEL, lambda: cancel(pair, task, 0)),
        (CANCEL, lambda: cancel(pair, task, 1)),
    )
    assert [site.request("tasks/get", {"taskId": task}, replica)["status"] for replica in (0, 1)] == ["cancelled"] * 2
    assert pair.queued() == 0


def test_an_update_and_a_cancellation_end_the_task_once(pair: Ground) -> None:
    site, task = pair.site, waiting_task(pair)
    at_once(
        pair,
        (ANSWER, lambda: site.answer(task, "name", 0, name="Ada")),
        (CANCEL, lambda: cancel(pair, task, 1)),
    )
    wait_until(lambda: pair.queued() == 0, "an empty queue")
    status = site.get(task)["status"]
    assert status in {"cancelled", "completed"}
    assert pair.door.replies(FINISH, task).count(b"ok") == (status == "completed")


def test_a_result_that_comes_after_the_cancellation_is_refused(pair: Ground) -> None:
    site = pair.site
    site.worker("w1")
    go_on = threading.Event()
    trap = pair.door.trap(runs(FINISH), go_on.wait)
    task = site.create("work")
    trap.wait()
    cancel(pair, task, 0)
    go_on.set()
    wait_until(lambda: bool(pair.door.replies(FINISH, task)), "the late result")
    assert pair.door.replies(FINISH, task) == [b"cancelled"]
    assert site.get(task)["status"] == "cancelled"
    assert "result" not in site.get(task)
    assert pair.queued() == 0


def cancel(ground: Ground, task: str, replica: int) -> None:
    ground.site.request("tasks/cancel", {"taskId": task}, replica)
