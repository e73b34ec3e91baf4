"""`make demo` against its own `gateway dev`: every demo tool, including tasks, driven by the official client."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from loadtest.cluster import REPOSITORY, clean_environment
from tests.docs.markdown import blocks_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def printed() -> str:
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
    return done.stdout


def test_the_demo_shows_every_tool_and_tasks_with_live_progress(printed: str) -> None:
    for line in ("= Echo: Hello World!", "wrote section 2 of 6 (2 of 6)", "task   completed", "continues as task t_"):
        assert line in printed


def test_it_prints_what_the_readme_shows(printed: str) -> None:
    """Replicas and sizes may differ; `…` stands for anything."""
    (shown,) = [block.text for block in blocks_of("README.md") if block.text.startswith("$ make demo\n")]
    pattern = re.escape(" ".join(shown.split()[3:]))
    for sample, any_other in {r"r\d\b": r"r\\d+", r"\d+\\ bytes": r"\\d+\\ bytes", "…": ".*"}.items():
        pattern = re.sub(sample, any_other, pattern)
    assert re.search(pattern, " ".join(printed.split()))
