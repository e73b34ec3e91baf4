"""A task that a worker cannot read costs it nothing, and its neighbours notice nothing."""

from __future__ import annotations

import pytest

from loadtest.cluster import wait_until
from tests.storage.servers import Server
from tests.workers.site import Site

pytestmark = pytest.mark.slow

LINES = {
    "task is damaged in the store": ("phase", "paused"),
    "task was stored by a newer release": ("about", '{"v": 99}'),
}


def record_of(server: Server, task_id: str) -> str:
    names = server.ask("KEYS", f"*:task:*:{task_id}")
    assert isinstance(names, list)
    return str(names[0], "ascii")


def looks(server: Server) -> int:
    """Return how often workers have looked for tasks of lost workers."""
    stats = server.ask("INFO", "commandstats")
    assert isinstance(stats, dict)
    return int(stats.get("cmdstat_xautoclaim", {"calls": 0})["calls"])


@pytest.mark.parametrize("line", LINES)
def test_a_task_that_cannot_be_read_waits_and_the_others_run(site: Site, line: str) -> None:
    site.fleet.environ["GATEWAY_TASK_LEASE_SECONDS"] = "1"
    field, value = LINES[line]
    victim, once = site.create("say", text="after all"), site.create("wait")
    record = record_of(site.server, victim)
    whole = site.server.ask("HGET", record, field)
    assert isinstance(whole, bytes)
    site.server.ask("HSET", record, field, value)
    worker = site.worker("w1")
    site.wait_for_line("started")
    began = looks(site.server)
    wait_until(lambda: looks(site.server) >= began + 24, "two seconds of looks, six a second in each partition")
    assert site.get(victim)["error"] == {"code": -32603, "message": "The task cannot be read"}
    site.open()
    assert site.text(once) == "done by w1"
    assert site.text(site.create("say", text="later")) == "later"
    site.server.ask("HSET", record, field, whole.decode())
    assert site.text(victim) == "after all"
    assert site.server.ask("HGET", record, "lost") is None
    assert [told["task"] for told in worker.logged(line)] == [victim], "one line, not one for each look"
    assert [told["task"] for told in site.replicas[0].logged(line) if told["task"] == victim] == [victim]
