"""`gateway tasks cancel`: the audit log comes first. Real stores are in `tests/workers/test_operators.py`."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
