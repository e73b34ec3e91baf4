"""Tasks from end to end with real processes: a replica creates them, workers run them, a store keeps them."""

from __future__ import annotations

import signal

from loadtest.cluster import wait_until
from tests.workers.site import Site


def test_a_task_is_created_by_a_replica_and_completed_by_a_worker(site: Site) -> None:
    site.worker("w1")
    assert site.text(site.create("say", text="hello")) == "hello"


def test_a_task_that_was_created_without_a_worker_waits_for_one(site: Site) -> None:
    task = site.create("say", text="hello")
    assert site.get(task)["status"] == "working"
    site.worker("w1")
    assert site.text(task) == "hello"


def test_a_task_that_waits_for_a_user_continues_at_another_worker(site: Site) -> None:
    first = site.worker("w1")
    task = site.create("ask")
    assert list(site.wait_for(task, "input_required")["inputRequests"]) == ["name"]
    first.signal(signal.SIGTERM)
    assert first.wait() == 0
    site.worker("w2")
    site.answer(task, "name", name="octocat")
    assert site.text(task) == "octocat: asked by w1, answered by w2"


def test_a_task_sees_the_headers_of_the_request_that_created_it(site: Site) -> None:
    site.worker("w1")
    task = site.sending(x_tenant="blue").create("tenant")
    site.wait_for(task, "input_required")
    site.sending(x_tenant="red").answer(task, "name", name="octocat")
    assert site.text(task) == "blue blue"


def test_a_task_that_waits_for_a_user_occupies_no_place(site: Site) -> None:
    site.worker("w1", "--concurrency", "1")
    waiting = site.create("ask")
    site.wait_for(waiting, "input_required")
    assert site.text(site.create("say", text="hello")) == "hello"
    assert site.get(waiting)["status"] == "input_required"


def test_cancelling_reaches_the_running_tool_long_before_its_next_heartbeat(site: Site) -> None:
    site.worker("w1", GATEWAY_TASK_LEASE_SECONDS="600")
    task = site.create("wait")
    site.wait_for_line("started")
    site.request("tasks/cancel", {"taskId": task})
    assert site.wait_for_line("cancelled") == ["w1"]
    assert site.get(task)["status"] == "cancelled"


def test_cancelling_reaches_the_running_tool_with_its_heartbeat_too(own_site: Site) -> None:
    site = own_site
    worker = site.worker("w1", GATEWAY_TASK_LEASE_SECONDS="1")
    task = site.create("wait")
    site.wait_for_line("started")
    site.server.ask("CLIENT", "KILL", "TYPE", "pubsub")
    site.request("tasks/cancel", {"taskId": task})
    assert site.wait_for_line("cancelled") == ["w1"]
    assert worker.alive


def test_two_workers_share_the_tasks(site: Site) -> None:
    site.worker("w1", "--concurrency", "1")
    site.worker("w2", "--concurrency", "1")
    tasks = [site.create("wait") for _ in range(2)]
    assert sorted(site.wait_for_line("started", 2)) == ["w1", "w2"]
    site.open()
    assert sorted(site.text(task) for task in tasks) == ["done by w1", "done by w2"]


def test_a_worker_runs_no_more_tasks_at_once_than_it_has_places(site: Site) -> None:
    worker = site.worker("w1", "--concurrency", "2")
    tasks = [site.create("wait", gate=f"gate{number}") for number in range(3)]
    site.wait_for_line("started", 2)
    assert worker.metric("gateway_tasks_running") == 2
    assert len(site.lines("started")) == 2
    for number in range(3):
        site.open(f"gate{number}")
    assert {site.text(task) for task in tasks} == {"done by w1"}


def test_progress_is_seen_while_the_task_runs_and_segments_make_up_the_result(site: Site) -> None:
    site.worker("w1")
    task = site.create("write_parts")
    wait_until(lambda: site.get(task).get("statusMessage") == "writing (2 of 4)", "progress")
    assert site.get(task)["_meta"]["dev.sealedgateway/progress"] == {"progress": 2, "total": 4}
    site.open()
    assert site.text(task) == "part 1\npart 2\npart 3\npart 4\nwritten by w1"
    assert site.get(task)["_meta"]["dev.sealedgateway/progress"] == {"progress": 4, "total": 4}


def test_a_worker_counts_how_legs_end(site: Site) -> None:
    worker = site.worker("w1")
    task = site.create("ask")
    site.wait_for(task, "input_required")
    site.answer(task, "name", name="octocat")
    site.text(task)
    wait_until(lambda: worker.metric("gateway_task_legs_total", outcome="completed", tool="ask") == 1, "a counter")
    assert worker.metric("gateway_task_legs_total", outcome="waiting", tool="ask") == 1
    assert worker.metric("gateway_tasks_running") == 0
    assert worker.metric("gateway_task_leases_lost_total") == 0


def test_a_worker_serves_no_metrics_unless_a_port_is_given(site: Site) -> None:
    worker = site.worker("w1", GATEWAY_METRICS_PORT="")
    assert worker.logged("metrics") == []
