"""`make demo` against its own `gateway dev`: every demo tool, including tasks, driven by the official client."""

from __future__ import annotations

import subprocess
import sys

from loadtest.cluster import REPOSITORY, clean_environment


def test_the_demo_shows_every_tool_and_tasks_with_live_progress() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.demo", "--url", "http://127.0.0.1:1/mcp"],
        cwd=REPOSITORY,
        env=clean_environment({"GATEWAY_METRICS_PORT": "0"}),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for line in ("= Echo: Hello World!", "wrote section 2 of 6 (2 of 6)", "task   completed", "continues as task t_"):
        assert line in done.stdout
