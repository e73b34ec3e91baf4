"""Workers that die, hang or lose the store: the task is done once, and nothing acknowledged is lost."""

from __future__ import annotations

import resource
import signal
import sys
from pathlib import Path

import pytest

from loadtest.cluster import wait_until
from loadtest.cluster.common import REPOSITORY, clean_environment
from tests import forkserver
from tests.integration.pipes import Pipe, unread
from tests.workers.site import Site, let_pass

pytestmark = pytest.mark.slow

LEASE_SECONDS = 1


@pytest.fixture
def hasty(site: Site) -> Site:
    """A site whose workers have leases of a second."""
    site.fleet.environ["GATEWAY_TASK_LEASE_SECONDS"] = str(LEASE_SECONDS)
    return site


def test_the_task_of_a_killed_worker_is_finished_by_another_with_no_step_done_twice(hasty: Site) -> None:
    first = hasty.worker("w1")
    task = hasty.create("write_parts")
    hasty.wait_for_line("kept")
    wait_until(lambda: hasty.get(task).get("statusMessage") == "writing (2 of 4)", "the second segment")
    first.signal(signal.SIGKILL)
    second = hasty.worker("w2")
    hasty.wait_for_line("started", 2)
    hasty.open()
    assert hasty.text(task) == "part 1\npart 2\npart 3\npart 4\nwritten by w2"
    assert hasty.lines("steps") == ["1", "2", "3", "4"]
    assert second.metric("gateway_tasks_redelivered_total") == 1


def test_a_tool_that_may_be_tried_once_is_not_tried_again(hasty: Site) -> None:
    first = hasty.worker("w1")
    task = hasty.create("wait")
    hasty.wait_for_line("started")
    first.signal(signal.SIGKILL)
    hasty.worker("w2")
    assert hasty.wait_for(task, "failed")["error"]["code"] == -32603
    assert hasty.lines("started") == ["w1"]


def test_a_worker_that_stood_still_past_its_lease_cannot_write_any_more(hasty: Site) -> None:
    first = hasty.worker("w1")
    task = hasty.create("write_parts")
    hasty.wait_for_line("kept")
    first.signal(signal.SIGSTOP)
    hasty.worker("w2")
    assert hasty.wait_for_line("started", 2) == ["w1", "w2"]
    first.signal(signal.SIGCONT)
    wait_until(lambda: first.metric("gateway_task_leases_lost_total") == 1, "the lease that is lost")
    hasty.open()
    assert hasty.text(task) == "part 1\npart 2\npart 3\npart 4\nwritten by w2"
    assert hasty.lines("steps") == ["1", "2", "3", "4"]


def test_a_tool_that_blocks_its_worker_is_named_and_not_started_a_second_time(hasty: Site) -> None:
    first = hasty.worker("w1")
    blocking = hasty.create("block")
    hasty.wait_for_line("blocking")
    hasty.worker("w2")
    let_pass(3 * LEASE_SECONDS)
    assert hasty.lines("blocking") == ["w1"]
    (named,) = first.wait_for_log("a tool blocks the event loop")
    assert named["tool"] == "block"
    assert len(named["flow"]) == 32
    assert "tools.py" in named["where"]
    hasty.open()
    assert hasty.text(blocking) == "blocked w1"


def test_tasks_beside_a_tool_that_blocks_continue_at_another_worker(hasty: Site) -> None:
    hasty.worker("w1")
    hasty.create("write_parts")
    hasty.wait_for_line("kept")
    hasty.create("block")
    hasty.wait_for_line("blocking")
    hasty.worker("w2")
    assert hasty.wait_for_line("started", 2) == ["w1", "w2"]


def test_a_running_tool_outlasts_an_outage_of_the_store_and_its_result_is_stored(own_site: Site) -> None:
    site = own_site
    worker = site.worker("w1")
    task = site.create("wait")
    site.wait_for_line("started")
    site.server.kill()
    site.open()
    wait_until(lambda: "task store is not available" in worker.log_text(), "the outage")
    site.server.start()
    assert site.text(task) == "done by w1"
    assert site.lines("started") == ["w1"]


def test_a_worker_that_starts_without_its_store_waits_for_it(own_site: Site) -> None:
    site = own_site
    task = site.create("say", text="hello")
    site.server.kill()
    site.worker("w1")
    site.server.start()
    assert site.text(task) == "hello"


@pytest.mark.parametrize("reader", ["unread", "dead"])
def test_an_audit_log_whose_reader_is_gone_blocks_no_worker(site: Site, tmp_path: Path, reader: str) -> None:
    pipe = Pipe(tmp_path / "audit")
    worker = site.worker("w1", GATEWAY_AUDIT_LOG=str(pipe.path))
    if reader == "unread":
        pipe.fill()
    else:
        pipe.lose_reader()
    for number in range(5):
        assert site.text(site.create("say", text=str(number))) == str(number)
    assert worker.terminate() == 0
    pipe.lose_reader()


def test_a_worker_whose_log_nobody_reads_works_and_stops(site: Site) -> None:
    environ = clean_environment({**site.fleet.environ, "GATEWAY_METRICS_PORT": "off"})
    with unread() as log:
        command = [sys.executable, "-m", "gateway", "worker", "--worker-id", "w1"]
        worker = forkserver.start(command, cwd=REPOSITORY, env=environ, stderr=log)
        try:
            for number in range(5):
                assert site.text(site.create("say", text=str(number))) == str(number)
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(30) == 0
        finally:
            worker.kill()
            worker.wait()


def test_a_worker_that_must_record_every_leg_claims_no_task_while_it_cannot(site: Site, tmp_path: Path) -> None:
    log = tmp_path / "audit"
    worker = site.worker("w1", GATEWAY_AUDIT_LOG=str(log), GATEWAY_AUDIT_LOG_REQUIRED="on")
    assert site.text(site.create("say", text="one")) == "one"
    wait_until(lambda: log.read_bytes().count(b"\n") == 1, "the first line")
    with log.open("ab") as junk:
        junk.write(b"x" * (1 << 20) + b"\n")
    soft, hard = resource.prlimit(worker.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (1 << 20, hard))
    assert site.text(site.create("say", text="two")) == "two"  # nobody knew yet
    wait_until(lambda: bool(worker.logged("lines cannot be written")), "the worker to notice")
    late = site.create("say", text="three")
    other = site.worker("w2")
    assert site.text(late) == "three"
    assert other.metric("gateway_task_legs_total", outcome="completed") == 1
    lines_of_others = log.read_bytes()
    resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (soft, hard))
    wait_until(lambda: len(log.read_bytes()) > len(lines_of_others), "the line that had to wait")
    assert worker.terminate() == 0
    assert log.read_bytes().count(b'"outcome":"completed"') == 2
