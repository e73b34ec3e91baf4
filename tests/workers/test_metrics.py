"""Metrics about tasks: all processes show the same count, and each shows what it has done with which key."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Callable
from functools import partial
from typing import Final

import pytest

from loadtest.cluster import Replica, Worker, wait_until
from tests.storage.servers import Server
from tests.workers.site import Site

pytestmark = pytest.mark.slow

_TASKS: Final = re.compile(r'^gateway_tasks\{phase="(\w+)"\} (\S+)$', re.MULTILINE)


def test_replicas_and_workers_show_the_same_count_of_tasks(site: Site) -> None:
    waiting, done = site.create("ask"), site.create("say", text="done")
    first = site.worker("w1")
    site.wait_for(waiting, "input_required")
    site.wait_for(done, "completed")
    counts = {"queued": "0.0", "running": "0.0", "waiting": "1.0", "done": "1.0", "cancelled": "0.0"}
    for process in (restarted(site.replicas[0]), site.worker("w2")):
        wait_until(partial(has_counted, process), "a count of tasks")
        assert counted(process) == counts
        assert process.metric("gateway_build_info") == 1
        assert process.metric("process_resident_memory_bytes") > 0
    assert first.metric("gateway_task_fields_opened_total") > 0
    assert first.metric("gateway_task_fields_sealed_total") > 0
    assert first.metric("gateway_redis_errors_total") == 0


def test_a_process_that_finds_no_redis_shows_no_count_but_that_commands_fail(
    server: Server, start_site: Callable[..., Site]
) -> None:
    server.kill()
    site = start_site()
    for process in (site.replicas[0], site.worker("w1")):
        assert process.metric("gateway_redis_errors_total", kind="connection") > 0
        assert counted(process) == {}


def test_a_worker_serves_metrics_on_loopback_unless_an_address_is_named(site: Site) -> None:
    for name, options, host in (("w1", [], "127.0.0.1"), ("w2", ["--metrics-host", "127.0.0.2"], "127.0.0.2")):
        worker = site.worker(name, *options)
        assert worker.metrics_url.startswith(f"http://{host}:")
        assert worker.metric("gateway_build_info") == 1
    other = site.worker("w3", GATEWAY_METRICS_HOST="127.0.0.3")
    assert other.metrics_url.startswith("http://127.0.0.3:")


def restarted(replica: Replica) -> Replica:
    replica.terminate()
    replica.start()
    replica.wait_ready()
    return replica


def has_counted(process: Replica | Worker) -> bool:
    return counted(process) != {}


def counted(process: Replica | Worker) -> dict[str, str]:
    """Return how many tasks a process shows in each phase."""
    with urllib.request.urlopen(process.metrics_url) as response:
        return dict(_TASKS.findall(response.read().decode()))
