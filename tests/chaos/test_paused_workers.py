"""A worker is paused past its lease while a write is on its way: the write arrives, and is rejected."""

from __future__ import annotations

import signal
import threading

import pytest

from gateway.storage.lua.task_scripts import EMIT, FINISH, KEEP, LATE, Script
from loadtest.cluster import wait_until
from tests.chaos.door import runs
from tests.chaos.ground import Ground

WRITES: dict[str, Script] = {"a step": KEEP, "a segment": EMIT, "the result": FINISH}


@pytest.mark.parametrize("write", WRITES)
def test_what_it_writes_late_is_refused(ground: Ground, write: str) -> None:
    site, script = ground.site, WRITES[write]
    first = site.worker("w1")
    go_on = threading.Event()

    def stand_still() -> None:
        first.signal(signal.SIGSTOP)
        go_on.wait()

    trap = ground.door.trap(runs(script), stand_still)
    site.open("gate w1")
    task = site.create("work", gate="gate")
    trap.wait()
    site.worker("w2")
    assert site.wait_for_line("at the gate", 2 if script is FINISH else 1)[-1] == "w2"
    told = len(ground.door.replies(script, task, errors=True))
    go_on.set()
    trap.wait_done()
    first.signal(signal.SIGCONT)
    wait_until(lambda: "task lost" in first.log_text(), "the worker to notice")
    late = ground.door.replies(script, task, errors=True)[told:]
    # A write after its deadline is rejected before the owner of the task is checked.
    assert late
    assert all(reply == b"lost" or reply.startswith(f"-{LATE}".encode()) for reply in late)
    site.open("gate w2")
    assert ground.result(task) == ["part 0", "part 1", "part 2", "done by w2"]
    assert ground.segments(task) == ["1-0", "2-0", "3-0"]
    ground.assert_balanced(task)


def test_it_accepts_new_work_when_it_continues(ground: Ground) -> None:
    site = ground.site
    first = site.worker("w1")
    lost = site.create("work", gate="gate")
    site.wait_for_line("at the gate")
    first.signal(signal.SIGSTOP)
    second = site.worker("w2")
    assert site.wait_for_line("at the gate", 2) == ["w1", "w2"]
    first.signal(signal.SIGCONT)
    wait_until(lambda: "task lost" in first.log_text(), "the worker to notice")
    site.open("gate w2")
    assert ground.result(lost)[-1] == "done by w2"
    second.signal(signal.SIGTERM)
    assert second.wait() == 0
    new = site.create("work")
    assert ground.result(new)[-1] == "done by w1"
    ground.assert_balanced(lost, new)
