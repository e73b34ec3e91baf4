"""A worker is killed with SIGKILL at each of its writes: just before the store executes it, and just after."""

from __future__ import annotations

import signal

import pytest

from gateway.storage.lua.task_scripts import CLAIM, EMIT, FINISH, KEEP, WAIT
from loadtest.cluster import Worker
from tests.chaos.door import Matcher, runs
from tests.chaos.ground import Ground


def keeps(field: bytes) -> Matcher:
    return lambda command: command.runs(KEEP) and field in command.parts


def emits(number: int) -> Matcher:
    return lambda command: command.runs(EMIT) and command.parts[-4] == b"%d" % number


WRITES: dict[str, Matcher] = {
    "claimed": runs(CLAIM),
    "in a step": keeps(b"s:part 1"),
    "at a checkpoint": keeps(b"cp"),
    "while emitting": emits(2),
    "the final write": runs(FINISH),
}
WHEN = pytest.mark.parametrize("after", [False, True], ids=["before", "after"])


def kill(worker: Worker) -> None:
    worker.signal(signal.SIGKILL)
    worker.wait()


@WHEN
@pytest.mark.parametrize("phase", WRITES)
def test_its_task_is_completed_once_with_every_segment_once(ground: Ground, phase: str, after: bool) -> None:
    site, first = ground.site, ground.site.worker("w1")
    trap = ground.door.trap(WRITES[phase], lambda: kill(first), after=after, cut=True)
    task = site.create("work")
    trap.wait()
    site.worker("w2")
    last = "w1" if phase == "the final write" and after else "w2"
    assert ground.result(task) == ["part 0", "part 1", "part 2", f"done by {last}"]
    assert ground.segments(task) == ["1-0", "2-0", "3-0"]
    repeated = ["1"] if phase == "in a step" and not after else []  # a step that was not stored runs again
    assert sorted(site.lines("steps")) == sorted(["0", "1", "2", *repeated])
    if last == "w1":
        assert site.lines("started") == ["w1"]
    ground.assert_balanced(task)


@WHEN
def test_its_task_asks_once_and_continues_with_the_answer(ground: Ground, after: bool) -> None:
    site, first = ground.site, ground.site.worker("w1")
    trap = ground.door.trap(runs(WAIT), lambda: kill(first), after=after, cut=True)
    task = site.create("ask")
    trap.wait()
    site.worker("w2")
    assert list(site.wait_for(task, "input_required")["inputRequests"]) == ["name"]
    site.answer(task, "name", name="Ada")
    assert ground.result(task) == ["part 0 for Ada"]
    assert site.lines("steps") == ["0"]
    ground.assert_balanced(task)
