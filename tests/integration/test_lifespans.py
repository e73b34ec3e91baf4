"""A process opens its shared resources before it serves; if that fails, it does not serve."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.cluster import START_SECONDS, clean_environment, new_key
from tests import forkserver

MODULE = """
import sys
from pathlib import Path
from gateway import lifespan, tool

@lifespan
async def first():
    try:
        yield 1
    finally:
        Path({diary!r}).write_text("closed")

@lifespan
async def second():
    {fail}
    yield 2

@tool
async def nothing() -> str:
    return ""
"""


def serve(folder: Path, fail: str) -> subprocess.CompletedProcess[str]:
    """Run `gateway serve` with a module whose second lifespan does `fail` before it opens."""
    (folder / "failing_tools.py").write_text(MODULE.format(diary=str(folder / "diary"), fail=fail))
    environ = {
        "GATEWAY_TOOLS": "failing_tools",
        "GATEWAY_SEAL_KEYS": new_key(),
        "GATEWAY_AUDIENCE": "tests",
        "GATEWAY_AUTH": "none",
        "GATEWAY_METRICS_PORT": "off",
    }
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return forkserver.run(
            [sys.executable, "-m", "gateway", "serve", "--fd", str(listener.fileno())],
            cwd=folder,
            env=clean_environment(environ),
            pass_fds=(listener.fileno(),),
            timeout=START_SECONDS,
        )


@pytest.mark.parametrize(
    ("fail", "reason"),
    [
        ('raise OSError("no\\ndatabase")', "OSError: no database (failing_tools.py:15)"),
        ('sys.exit("no database")', "SystemExit: no database (failing_tools.py:15)"),
        ("return", "RuntimeError: generator didn't yield (failing_tools.py:13)"),
    ],
)
def test_a_lifespan_that_fails_to_open_is_one_line_and_exit_code_2(tmp_path: Path, fail: str, reason: str) -> None:
    ended = serve(tmp_path, fail)
    assert ended.stderr == f"gateway: the lifespan 'second' failed to open: {reason}\n"
    assert ended.stdout == ""
    assert ended.returncode == 2
    assert (tmp_path / "diary").read_text() == "closed"
