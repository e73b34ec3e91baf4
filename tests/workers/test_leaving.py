"""A worker that is asked to stop hands back its running tasks, and none counts as lost."""

from __future__ import annotations

import signal

import pytest

from loadtest.cluster import Worker
from tests.workers.site import Site


def check_last_line(worker: Worker, exit_code: int) -> None:
    """Check that a worker's last log line says that it has stopped, and how."""
    last = worker.log_lines()[-1]
    assert (last["message"], last["exit_code"]) == ("stopped", exit_code), last


def test_a_task_is_handed_back_at_its_next_checkpoint_and_continues_from_there(site: Site) -> None:
    first = site.worker("w1")
    task = site.create("count")
    site.wait_for_line("units", 5)
    first.signal(signal.SIGTERM)
    assert first.wait() == 0
    check_last_line(first, 0)
    site.open()
    site.worker("w2")
    assert site.text(task) == "counted by w2"  # the tool may be tried only once, so this leg did not count as a try
    done = [line.split() for line in site.lines("units")]
    assert [unit for unit, worker in done if worker == "w1"] == ["0", "1", "2", "3", "4"]
    assert [unit for unit, worker in done if worker == "w2"] == ["4", "5", "6", "7", "8", "9"]


def test_a_task_that_finishes_within_the_drain_time_is_finished_here(site: Site) -> None:
    worker = site.worker("w1")
    task = site.create("wait")
    site.wait_for_line("started")
    worker.signal(signal.SIGTERM)
    site.open()
    assert worker.wait() == 0
    assert site.text(task) == "done by w1"


def test_a_task_that_does_not_finish_is_cut_off_and_handed_back_without_counting_as_lost(site: Site) -> None:
    first = site.worker("w1", GATEWAY_DRAIN_SECONDS="0")
    task = site.create("write_parts")
    site.wait_for_line("kept")
    first.signal(signal.SIGTERM)
    assert first.wait() == 1
    check_last_line(first, 1)
    site.open()
    second = site.worker("w2")
    assert site.text(task).endswith("written by w2")
    assert site.lines("started") == ["w1", "w2"]
    assert second.metric("gateway_tasks_redelivered_total") == 0


def test_a_task_that_may_be_tried_once_and_is_cut_off_fails_as_if_its_worker_was_lost(site: Site) -> None:
    first = site.worker("w1", GATEWAY_DRAIN_SECONDS="0")
    task = site.create("wait")
    site.wait_for_line("started")
    first.signal(signal.SIGTERM)
    assert first.wait() == 1
    assert site.lines("cancelled") == ["w1"]
    assert site.get(task)["error"] == {
        "code": -32603,
        "message": "The task failed: too many of its workers were lost",
        "data": {"attempts": 1},
    }
    site.open()
    site.worker("w2")
    assert site.text(site.create("say", text="hello")) == "hello"
    assert site.lines("started") == ["w1"]


def test_a_leaving_worker_claims_nothing_more(site: Site) -> None:
    worker = site.worker("w1")
    site.create("wait")
    site.wait_for_line("started")
    worker.signal(signal.SIGTERM)
    late = site.create("say", text="hello")
    site.open()
    assert worker.wait() == 0
    assert site.get(late)["status"] == "working"


@pytest.mark.slow
def test_a_tool_that_never_yields_cannot_keep_a_worker_from_leaving(site: Site) -> None:
    worker = site.worker("w1", GATEWAY_DRAIN_SECONDS="0")
    site.create("block")
    site.wait_for_line("blocking")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 1
    check_last_line(worker, 1)
