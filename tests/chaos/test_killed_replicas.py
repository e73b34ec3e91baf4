"""A replica is killed between accepting a request and answering it: an unacknowledged request may be repeated."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from gateway.storage.lua.task_scripts import ANSWER, CANCEL, CREATE, Script
from tests.chaos.door import Trap, runs
from tests.chaos.ground import Ground

WHEN = pytest.mark.parametrize("after", [False, True], ids=["before", "after"])


def kill_replica_at(ground: Ground, script: Script, after: bool) -> Trap:
    """Kill the first replica around its next use of a script."""
    first = ground.site.fleet.replicas[0]
    return ground.door.trap(runs(script), first.kill, after=after, cut=True)


@WHEN
def test_what_was_acknowledged_before_is_there_and_what_was_not_runs_at_most_once(ground: Ground, after: bool) -> None:
    site = ground.site
    kept = site.create("work")
    kill_replica_at(ground, CREATE, after)
    with pytest.raises(httpx.TransportError):
        site.create("work")
    site.fleet.replicas[0].restart()
    repeated = site.create("work")
    site.worker("w1")
    for task in (kept, repeated):
        assert ground.result(task) == ["part 0", "part 1", "part 2", "done by w1"]
    ground.assert_balanced(kept, repeated)  # nothing is queued any more
    assert len(site.lines("started")) == (3 if after else 2)
    assert site.lines("steps").count("0") == len(site.lines("started"))


@WHEN
def test_an_answer_that_was_not_acknowledged_is_given_again_and_counts_once(
    start: Callable[..., Ground], after: bool
) -> None:
    ground = start("r1", "r2")
    site = ground.site
    task = site.create("ask")
    site.worker("w1")
    site.wait_for(task, "input_required")
    kill_replica_at(ground, ANSWER, after)
    with pytest.raises(httpx.TransportError):
        site.answer(task, "name", name="Ada")
    site.fleet.replicas.reverse()
    site.answer(task, "name", name="Ada")
    assert ground.result(task) == ["part 0 for Ada"]
    assert site.lines("legs") == ["w1", "w1"]
    assert site.lines("answered") == ["Ada"]
    ground.assert_balanced(task)


@WHEN
def test_a_cancellation_that_was_not_acknowledged_is_asked_for_again(start: Callable[..., Ground], after: bool) -> None:
    ground = start("r1", "r2")
    site = ground.site
    task = site.create("ask")
    site.worker("w1")
    site.wait_for(task, "input_required")
    kill_replica_at(ground, CANCEL, after)
    with pytest.raises(httpx.TransportError):
        site.request("tasks/cancel", {"taskId": task})
    site.fleet.replicas.reverse()
    site.request("tasks/cancel", {"taskId": task})
    assert site.get(task)["status"] == "cancelled"
    site.answer(task, "name", name="Ada")
    assert site.get(task)["status"] == "cancelled"
    assert site.lines("legs") == ["w1"]
    assert ground.queued() == 0
