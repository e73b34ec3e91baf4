"""`gateway tasks cancel`: the audit log comes first. Real stores are in `tests/workers/test_operators.py`."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.cli import tasks
from gateway.cli.failures import CommandFailed
from gateway.settings.model import Settings
from gateway.storage.all_tasks import TaskFacts
from gateway.tasks.model import Phase

RECORD = """
import sys
from gateway.cli.tasks import _record
from gateway.settings.model import Settings
from gateway.storage.all_tasks import TaskFacts
from gateway.tasks.model import Phase

task = TaskFacts(owner="o", task_id="t", tool="x", phase=Phase.QUEUED, created_ms=1, updated_ms=1, expires_ms=9,
                 now_ms=1, open_questions=0, lost=0, worker="", silent_ms=0, readable=True)
print(_record(Settings.load({}, audit_log_required=True, audit_log=sys.argv[1]), [task]))
"""


@pytest.mark.setting("audit_log_required", "audit_log")
@pytest.mark.parametrize(("destination", "is_written"), [("stderr", False), ("/dev/full", False), ("/dev/null", True)])
def test_a_line_counts_as_written_only_if_it_was(destination: str, *, is_written: bool) -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        command = [sys.executable, "-c", RECORD, destination]
        recorded = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, check=False, timeout=60)
    assert recorded.stdout.decode().strip() == str(is_written)


def facts(task_id: str, phase: Phase) -> TaskFacts:
    return TaskFacts(
        owner="o",
        task_id=task_id,
        tool="x",
        phase=phase,
        created_ms=1,
        updated_ms=1,
        expires_ms=9,
        now_ms=1,
        open_questions=0,
        lost=0,
        worker="",
        silent_ms=0,
        readable=True,
    )


AFTER = {"gone": None, "done": facts("done", Phase.DONE), "third": facts("third", Phase.CANCELLED)}


class Ending:
    """Stored tasks that end, each in its own way, after they were found."""

    async def walk(self, *_: Any) -> AsyncIterator[TaskFacts]:
        for task_id in AFTER:
            yield facts(task_id, Phase.RUNNING)

    async def cancel(self, task: TaskFacts) -> TaskFacts | None:
        return AFTER[task.task_id]


async def test_tasks_that_end_first_are_failures_and_the_others_are_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.asynccontextmanager
    async def open_store(_settings: Settings) -> AsyncIterator[Any]:
        yield tasks.OpenStore(Ending(), "")  # type: ignore[arg-type]

    monkeypatch.setattr(tasks, "open_store", open_store)
    said: list[str] = []
    with pytest.raises(CommandFailed, match=r"^task gone: it expired .*; task done: it ended before .* \(done\)$"):
        await tasks.cancel(Settings.load({}, audit_log="off"), list(AFTER), "", said.append)
    assert said == ["task third: cancelled"]
