"""`make run` in this checkout, as in the README: it serves, a call moves between replicas, and it ends cleanly."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from loadtest.cluster import REPOSITORY, clean_environment, free_port, wait_until
from tests.integration.raw import post, tool_call

pytestmark = pytest.mark.slow

STAMP = ".venv/.installed"


class Run(NamedTuple):
    """A `make run` under way."""

    make: subprocess.Popen[bytes]
    url: str
    log: Path

    def pids(self) -> list[int]:
        """Return the processes that it has logged as started."""
        return [int(pid) for pid in re.findall(r"(?:is ready|is running): pid (\d+)", self.log.read_text())]


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    port, log = free_port(), tmp_path / "make.log"
    with log.open("wb") as output:
        make = subprocess.Popen(
            # The environment is that of the tests: nothing must be installed now.
            ["make", f"--assume-old={STAMP}", "run", f"PORT={port}"],
            cwd=REPOSITORY,
            env=clean_environment({"GATEWAY_METRICS_PORT": "0"}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    yield Run(make, f"http://127.0.0.1:{port}/mcp", log)
    if make.poll() is None:
        make.terminate()
        make.wait(60)


def test_it_serves_the_demo_tools_on_two_replicas_until_it_is_stopped(run: Run) -> None:
    wait_until(lambda: f"ready on {run.url}" in run.log.read_text(), "make run to serve")
    asked = post(run, tool_call("link_accounts"))
    answers = {key: {"action": "accept", "content": {"name": "octocat"}} for key in asked.result["inputRequests"]}
    done = post(run, tool_call("link_accounts", requestState=asked.state, inputResponses=answers))
    assert done.text == "Linked GitHub account octocat and Google account octocat."
    assert {answer.headers["x-gateway-replica"] for answer in (asked, done)} == {"r1", "r2"}

    pids = run.pids()
    assert len(pids) == 4  # the store, two replicas, a worker
    run.make.send_signal(signal.SIGTERM)
    run.make.wait(60)
    wait_until(lambda: not any(runs(pid) for pid in pids), "the end of all that it started")
    said = run.log.read_text()
    assert "gateway dev: stopped" in said
    assert "Traceback" not in said
