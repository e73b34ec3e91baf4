"""No other program of the same user can read the variables of a gateway process, which have its secrets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.cluster import clean_environment

ROOT = Path(__file__).parents[2]
POWERLESS = ["setpriv", "--bounding-set=-all"] if os.geteuid() == 0 else []
"""Root may read everything, so it gives up its power here."""


def environ_of(pid: int) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*POWERLESS, "cat", f"/proc/{pid}/environ"], capture_output=True, check=False)


@pytest.mark.slow
def test_the_variables_of_dev_its_replicas_and_its_workers_cannot_be_read(tmp_path: Path) -> None:
    command = [*POWERLESS, sys.executable, "-m", "gateway", "dev", "--port", "0", "--replicas", "1", "--workers", "1"]
    env = {**clean_environment(os.environ), "PYTHONPATH": str(ROOT), "GATEWAY_METRICS_PORT": "off"}
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as dev:
        assert dev.stdout is not None
        try:
            found: dict[str, int] = {"dev": dev.pid}
            for line in dev.stdout:
                started = re.search(r"(r1|w1) is (?:ready|running): pid (\d+)", line)
                if started is not None:
                    found[started[1]] = int(started[2])
                if len(found) == 3:
                    break
            answers = {name: environ_of(pid) for name, pid in found.items()}
        finally:
            dev.terminate()
            dev.stdout.read()
    assert answers.keys() == {"dev", "r1", "w1"}
    assert all(answer.stdout == b"" and b"Permission denied" in answer.stderr for answer in answers.values()), answers


def test_those_of_other_processes_can_be_read() -> None:
    command = [*POWERLESS, sys.executable, "-c", "import time\nprint(flush=True)\ntime.sleep(60)"]
    with subprocess.Popen(command, env={"MARKED": "yes"}, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        try:
            other.stdout.readline()  # before, it may still have the powers of this process
            assert b"MARKED=yes" in environ_of(other.pid).stdout
        finally:
            other.kill()
