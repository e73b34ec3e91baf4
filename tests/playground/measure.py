"""Measures the playground: the first paint, and the CPU time that a replica spends on an open page.

Usage: `python -m tests.playground.measure`, after `make playground`, on a quiet machine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from tests.cli.test_dev import Dev

HERE = Path(__file__).parent
PEERS = HERE.parent.parent / ".venvs/browser"
OPEN_SECONDS = 30


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process so far (proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print the figures."""
    environ = {**os.environ, "PEERS": str(PEERS), "CHROMIUM": shutil.which("chromium") or "chromium"}
    with tempfile.TemporaryDirectory() as folder, closing(Dev(cwd=Path(folder))) as dev:
        dev.read_until_ready()
        replicas = [dev.pid_of(name) for name in ("r1", "r2")]
        before = sum(map(cpu_seconds, replicas))
        time.sleep(OPEN_SECONDS)
        idle = sum(map(cpu_seconds, replicas)) - before
        given = {**environ, "DEV_URL": dev.page, "OPEN_SECONDS": str(OPEN_SECONDS)}
        command = [str(PEERS / "bin/node"), str(HERE / "pages/measure.mjs")]
        with subprocess.Popen(command, env=given, stdout=subprocess.PIPE, text=True) as browser:
            assert browser.stdout is not None
            measured = json.loads(browser.stdout.readline())
            before = sum(map(cpu_seconds, replicas))
            browser.wait()
            watched = sum(map(cpu_seconds, replicas)) - before
    share = (watched - idle) / OPEN_SECONDS / len(replicas)
    loaded = measured["bytes"] / 1024
    sys.stdout.write(f"first paint {measured['paint']:.0f} ms (median of 5), {loaded:.0f} KiB loaded before a call\n")
    sys.stdout.write(f"an open page costs each replica {share:.2%} of a core\n")


if __name__ == "__main__":
    main()
