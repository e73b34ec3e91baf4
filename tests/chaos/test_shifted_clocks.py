"""Clocks that are an hour off are noticed, and only the documented functions fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.observability.clock_watch import RIGHT_SECONDS
from loadtest.cluster import Replica, Worker, wait_until
from tests.chaos.clocks import ShiftedClock
from tests.workers.conftest import pytest_runtest_makereport
from tests.workers.site import Site

__all__ = ["pytest_runtest_makereport"]

HOUR = 3600
SLACK_SECONDS = 60
"""The largest error of a comparison on a busy machine."""

NOTICED_SECONDS = 2 * RIGHT_SECONDS + SLACK_SECONDS
ANSWER = {"name": {"action": "accept", "content": {"name": "Ada"}}}


def said(process: Replica | Worker, message: str) -> list[float]:
    """Return the seconds of each line that a process has logged about its clock and Redis's."""
    return [line["seconds"] for line in process.logged(message, source="redis")]


def ready(replica: Replica) -> tuple[int, Any]:
    """Return the status of `/readyz`, and how far the replica thinks that it is ahead of Redis."""
    response = httpx.get(replica.url.replace("/mcp", "/readyz"))
    return response.status_code, response.json()["clock"]["redis"]


def leg(site: Site, tool: str, replica: int, **params: Any) -> httpx.Response:
    return site.post("tools/call", {"name": tool, "arguments": {}, **params}, replica)


@pytest.fixture
def clock(tmp_path: Path) -> Iterator[ShiftedClock]:
    yield ShiftedClock(tmp_path / "clock")
    ShiftedClock.clean_up()


@pytest.mark.parametrize(("shift", "seconds"), [("+1h", HOUR), ("-1h", -HOUR)], ids=["ahead", "behind"])
def test_a_replica_and_a_worker_an_hour_off_say_so_and_tasks_do_not_notice(
    start_site: Callable[..., Site], clock: ShiftedClock, shift: str, seconds: int
) -> None:
    site = start_site("r1", GATEWAY_TOOLS="tests.chaos.tools")
    clock.set(shift)
    off = site.fleet.add_replica("r2", **clock.environ)
    worker = site.worker("w1", **clock.environ)
    for process in (off, worker):
        wait_until(lambda: bool(said(process, "clock is off")), "the process to notice")  # noqa: B023
        assert said(process, "clock is off") == [pytest.approx(seconds, abs=SLACK_SECONDS)]
        shown = process.metric("gateway_clock_offset_seconds", source="redis")
        assert shown == pytest.approx(seconds, abs=SLACK_SECONDS)
    assert ready(off) == (200, pytest.approx(seconds, abs=SLACK_SECONDS))
    assert ready(site.fleet["r1"]) == (200, pytest.approx(0, abs=SLACK_SECONDS))
    assert not said(site.fleet["r1"], "clock is off")

    created = site.request("tools/call", {"name": "work", "arguments": {}}, 1)
    assert site.text(created["taskId"]).splitlines()[-1] == "done by w1"
    asked = leg(site, "charge", 1).json()["result"]
    given = {"requestState": asked["requestState"], "inputResponses": ANSWER}
    assert leg(site, "charge", 1, **given).json()["result"]["content"][0]["text"] == "Ada paid"
    assert leg(site, "charge", 1, **given).status_code == 200  # the same answer again
    assert site.lines("charged") == ["Ada"]


@pytest.mark.parametrize(("shift", "refused_by"), [("+1h", "r2"), ("-1h", "r1")], ids=["ahead", "behind"])
def test_a_state_that_one_clock_has_made_is_over_for_one_that_is_an_hour_ahead(
    start_site: Callable[..., Site], clock: ShiftedClock, shift: str, refused_by: str
) -> None:
    site = start_site("r1", GATEWAY_TOOLS="tests.chaos.tools", GATEWAY_STATE_TTL_SECONDS="600")
    clock.set(shift)
    site.fleet.add_replica("r2", **clock.environ)
    refusing = ["r1", "r2"].index(refused_by)
    state = leg(site, "hello", 1 - refusing).json()["result"]["requestState"]
    answer = leg(site, "hello", refusing, requestState=state, inputResponses=ANSWER)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32602)
    site.fleet[refused_by].wait_for_log("requestState rejected")
    assert [line["reason"] for line in site.fleet[refused_by].logged("requestState rejected")] == ["expired"]


def test_a_store_whose_clock_is_another_takes_no_replica_out_and_all_of_them_say_when_it_agrees_again(
    start_site: Callable[..., Site], clock: ShiftedClock
) -> None:
    """Redis cannot be started with another clock, but putting all replicas behind it has the same effect."""
    site = start_site("r1", "r2", **clock.environ)
    clock.set("-1h")
    for replica in site.fleet.replicas:
        wait_until(lambda: bool(said(replica, "clock is off")), "the replica to notice")  # noqa: B023
        assert ready(replica) == (200, pytest.approx(-HOUR, abs=SLACK_SECONDS))
    clock.set("+0")
    for replica in site.fleet.replicas:
        right = "clock is right again"
        wait_until(lambda: bool(said(replica, right)), "it to be right again", NOTICED_SECONDS)  # noqa: B023
        assert ready(replica) == (200, pytest.approx(0, abs=SLACK_SECONDS))
        assert (len(said(replica, "clock is off")), len(said(replica, right))) == (1, 1)
