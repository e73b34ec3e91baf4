"""The store is killed, unreachable, full, slow or forgetful: tasks wait for it, calls do not notice."""

from __future__ import annotations

import time
from collections.abc import Callable

from gateway.storage.lua.shared_scripts import TOTALS
from gateway.storage.lua.task_scripts import FINISH
from loadtest.cluster import wait_until
from tests.chaos.door import runs
from tests.chaos.ground import Ground

OUTAGE_SECONDS = 30.0
DELAY_SECONDS = 0.2


def asked_for_requests(ground: Ground) -> int:
    """Count the commands that reached the store, except the replicas' regular count of tasks."""
    return sum(not command.runs(TOTALS) for command in list(ground.door.arrived))


def test_calls_send_the_store_nothing(ground: Ground) -> None:
    before = asked_for_requests(ground)
    assert ground.hello() == "Hello Ada"
    assert asked_for_requests(ground) == before
    ground.site.create("work")
    assert asked_for_requests(ground) > before


def test_a_server_that_is_killed_comes_back_with_every_task_as_it_was(start: Callable[..., Ground]) -> None:
    ground = start(GATEWAY_TASK_LEASE_SECONDS="30")
    site = ground.site
    worker = site.worker("w1", "--concurrency", "2")
    done, waiting = site.create("work"), site.create("ask")
    ground.result(done)
    site.wait_for(waiting, "input_required")
    running = [site.create("work", gate="gate") for _ in range(2)]
    site.wait_for_line("at the gate", 2)
    queued = site.create("work")
    site.server.kill()
    assert ground.refused("tools/call", name="work", arguments={})
    assert all(ground.refused("tasks/get", taskId=task) for task in (done, waiting, *running, queued))
    assert ground.hello() == "Hello Ada"
    steps = len(site.lines("steps"))
    site.open("gate w1")
    site.wait_for_line("steps", steps + len(running))  # running tasks continue, and wait where they have to write
    site.server.start()
    wait_until(lambda: not ground.refused("tasks/get", taskId=done), "the store")
    assert ground.result(done) == ["part 0", "part 1", "part 2", "done by w1"]
    site.answer(waiting, "name", name="Ada")
    for task in (*running, queued):
        assert ground.result(task) == ["part 0", "part 1", "part 2", "done by w1"]
        assert ground.segments(task) == ["1-0", "2-0", "3-0"]
    assert ground.result(waiting) == ["part 0 for Ada"]
    assert len(site.lines("steps")) == 3 * 4 + 1
    assert worker.alive
    ground.assert_balanced(done, waiting, *running, queued)


def test_a_server_that_cannot_be_reached_for_30_seconds_costs_time_and_nothing_else(ground: Ground) -> None:
    site = ground.site
    workers = [site.worker(name, "--concurrency", "1") for name in ("w1", "w2")]
    waiting = site.create("ask")
    site.wait_for(waiting, "input_required")
    running = [site.create("work", gate="gate") for _ in range(2)]
    site.wait_for_line("at the gate", 2)
    queued = site.create("work")
    ground.door.shut()
    back_at = time.monotonic() + OUTAGE_SECONDS
    for worker in workers:
        site.open(f"gate {worker.name}")  # running tasks continue, with nowhere to write to
    while time.monotonic() < back_at:
        assert ground.refused("tools/call", name="work", arguments={})
        assert ground.refused("tasks/get", taskId=waiting)
        assert ground.hello() == "Hello Ada"
    ground.door.open()
    wait_until(lambda: not ground.refused("tasks/get", taskId=waiting), "the store")
    site.answer(waiting, "name", name="Ada")
    for task in (*running, queued):
        texts = ground.result(task)
        assert texts[:3] == ["part 0", "part 1", "part 2"]
        assert len(texts) == 4
        assert ground.segments(task) == ["1-0", "2-0", "3-0"]
    assert ground.result(waiting) == ["part 0 for Ada"]
    assert all(worker.alive for worker in workers)
    ground.assert_balanced(waiting, *running, queued)


def test_a_server_that_is_full_refuses_new_tasks_and_finishes_old_ones(ground: Ground) -> None:
    site = ground.site
    site.worker("w1")
    task = site.create("work", parts=1, gate="gate")
    site.wait_for_line("at the gate")
    site.server.ask("CONFIG", "SET", "maxmemory", "1")
    assert ground.refused("tools/call", name="work", arguments={})
    assert site.get(task)["status"] == "working"
    assert ground.hello() == "Hello Ada"
    site.open("gate w1")  # its last step cannot be stored, and waits
    site.wait_for_line("steps")
    site.server.ask("CONFIG", "SET", "maxmemory", "0")
    assert ground.result(task) == ["part 0", "done by w1"]
    assert site.lines("steps") == ["0"]
    new = site.create("work")
    assert len(ground.result(new)) == 4
    ground.assert_balanced(task, new)


def test_a_server_that_is_full_still_takes_a_result(ground: Ground) -> None:
    site = ground.site
    site.worker("w1")
    trap = ground.door.trap(runs(FINISH), lambda: site.server.ask("CONFIG", "SET", "maxmemory", "1"))
    task = site.create("work")
    trap.wait_done()
    assert ground.door.replies(FINISH, task) == [b"ok"]
    assert len(ground.result(task)) == 4
    ground.assert_balanced(task)


def test_a_slow_server_makes_tasks_slow_and_no_call(ground: Ground) -> None:
    site = ground.site
    site.worker("w1")
    ground.door.delay = DELAY_SECONDS
    task, waiting = site.create("work"), site.create("ask")
    assert ground.hello() == "Hello Ada"
    site.wait_for(waiting, "input_required")
    site.answer(waiting, "name", name="Ada")
    assert ground.result(task) == ["part 0", "part 1", "part 2", "done by w1"]
    assert ground.result(waiting) == ["part 0 for Ada"]
    assert site.lines("started") == ["w1"]  # its lease was extended all the time
    ground.assert_balanced(task, waiting)


def test_a_server_that_forgets_its_scripts_before_each_command_serves_all_of_them(
    start: Callable[..., Ground],
) -> None:
    ground = start(GATEWAY_TASK_LEASE_SECONDS="2")
    site = ground.site
    ground.door.before_each = ("SCRIPT", "FLUSH")
    site.worker("w1")
    task, waiting, unwanted = site.create("work"), site.create("ask"), site.create("ask")
    for asking in (waiting, unwanted):
        site.wait_for(asking, "input_required")
    site.answer(waiting, "name", name="Ada")
    site.request("tasks/cancel", {"taskId": unwanted})
    assert ground.result(task) == ["part 0", "part 1", "part 2", "done by w1"]
    assert ground.result(waiting) == ["part 0 for Ada"]
    assert site.get(unwanted)["status"] == "cancelled"
    ground.assert_balanced(task, waiting)
