"""`gateway dev` ends when asked to, even if nobody can read its output, and leaves nothing running."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from loadtest.cluster import wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
STOP_SECONDS = 40.0
"""On an otherwise idle machine it takes at most five. Tests share theirs."""
STARTED = re.compile(r"(\w+) (?:is ready|is running|has the child): pid (\d+)")

TOOLS = """
import subprocess
from gateway.demo import *
child = subprocess.Popen(["sleep", "600"])
with open("children", "a") as children:
    children.write(f"{child.pid}\\n")
print("." * 300_000)
print(f"it has the child: pid {child.pid}", flush=True)
"""
"""Each process that loads these tools writes more than a pipe holds, and starts a child that keeps its stdout open."""

DEAF = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})\nfrom gateway.demo import *\n"

WITH_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
WITH_HANGUP = (
    "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
)
"""The tests themselves may run under `nohup`."""

WITHOUT_HANGUP = WITH_HANGUP.replace("SIG_DFL", "SIG_IGN")


class Dev:
    """A running `gateway dev` whose output may be lost.

    Args:
        started_by: Python code that ends in executing its arguments.
    """

    def __init__(self, folder: Path, *options: str, tools: str, started_by: str, **streams: Any) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")}
        command = [sys.executable, "-m", "gateway", "dev", "--port", "0", "--tools", "tools.py", *options]
        (folder / "tools.py").write_text(tools)
        self._children = folder / "children"
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", started_by, *command],
            env={**inherited, "PYTHONPATH": str(ROOT), "GATEWAY_METRICS_PORT": "0", "GATEWAY_DRAIN_SECONDS": "600"},
            cwd=folder,
            **streams,
        )

    def ends_with_all_of(self, pids: dict[str, int]) -> None:
        """Assert that it ends in time with exit code 0, and that everything it started ends too.

        That includes the children of tools in every process that loaded them.
        """
        assert self.process.wait(timeout=STOP_SECONDS) == 0
        children = self._children.read_text().split() if self._children.exists() else []
        ended = {*pids.values(), *map(int, children)}
        wait_until(lambda: not any(map(runs, ended)), f"the end of {ended}", STOP_SECONDS)


def runs(pid: int) -> bool:
    """Return whether a process runs. A zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def read_until(descriptor: int, *patterns: str) -> str:
    """Read the output until it contains all of these patterns."""
    seen = b""
    while not all(re.search(pattern.encode(), seen) for pattern in patterns):
        piece = os.read(descriptor, 65536)
        assert piece, seen.decode()
        seen += piece
    return seen.decode()


def started(text: str) -> dict[str, int]:
    """Return the processes that the output names."""
    return {f"{name} {number}": int(pid) for number, (name, pid) in enumerate(STARTED.findall(text))}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Dev]]:
    running: list[Dev] = []

    def start(*options: str, tools: str = TOOLS, started_by: str = WITH_HANGUP, **streams: Any) -> Dev:
        running.append(Dev(tmp_path, *options, tools=tools, started_by=started_by, **streams))
        return running[-1]

    yield start
    for dev in running:
        with suppress(ProcessLookupError):
            dev.process.kill()
        dev.process.wait()


def test_closing_the_terminal_ends_it_and_all_that_it_started(start: Callable[..., Dev]) -> None:
    master, slave = os.openpty()
    dev = start(
        "--replicas", "1", started_by=WITH_TERMINAL, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    )
    os.close(slave)
    text = read_until(master, "ready on")
    while len(started(text)) < 5:  # a store, a replica and a worker, and a child of each but the store
        text += read_until(master, "child: pid.*\n")
    pids = started(text)
    assert all(map(runs, pids.values()))
    os.close(master)
    dev.ends_with_all_of(pids)


def test_a_lost_reader_ends_the_run_and_kills_what_does_not_stop_in_time(
    start: Callable[..., Dev], tmp_path: Path
) -> None:
    """Nobody is left to press Ctrl-C a second time, so waiting for running calls would take the full ten minutes."""
    reader, writer = os.pipe()
    with (tmp_path / "stderr").open("wb") as errors:
        dev = start("--replicas", "1", tools=DEAF, stdout=writer, stderr=errors)
    os.close(writer)
    pids = started(read_until(reader, "ready on"))
    assert len(pids) == 3
    os.close(reader)
    dev.ends_with_all_of(pids)
    assert b"Traceback" not in (tmp_path / "stderr").read_bytes()


def test_a_signal_ends_it_though_its_reader_has_stopped_reading(start: Callable[..., Dev]) -> None:
    """The pipe is full, as when somebody pauses `gateway dev 2>&1 | less`, so a write to it would never return."""
    reader, writer = os.pipe()
    full, errors = os.pipe()
    os.set_blocking(errors, False)
    with suppress(BlockingIOError):
        while True:
            os.write(errors, bytes(4096))
    os.set_blocking(errors, True)
    dev = start("--replicas", "1", "--workers", "0", stdout=writer, stderr=errors)
    os.close(writer)
    os.close(errors)
    pids = started(read_until(reader, "ready on"))
    dev.process.send_signal(signal.SIGHUP)
    dev.ends_with_all_of(pids)
    os.close(reader)
    os.close(full)


def test_without_a_terminal_it_writes_to_its_file_and_serves_until_a_signal(
    start: Callable[..., Dev], tmp_path: Path
) -> None:
    """As under `nohup`, which ignores SIGHUP. Nobody reads the children's output, but that blocks nothing."""
    reader, errors = os.pipe()
    os.close(reader)
    file = tmp_path / "stdout"
    with file.open("wb") as output:
        dev = start("--replicas", "1", "--workers", "0", started_by=WITHOUT_HANGUP, stdout=output, stderr=errors)
    os.close(errors)
    wait_until(lambda: "ready on" in file.read_text(), "it to be ready")
    pids = started(file.read_text())
    dev.process.send_signal(signal.SIGHUP)
    ignored = re.findall(r"SigIgn:\s+(\w+)", Path(f"/proc/{dev.process.pid}/status").read_text())
    assert int(ignored[0], 16) & 1 << (signal.SIGHUP - 1)
    dev.process.terminate()
    dev.ends_with_all_of(pids)
    assert file.read_text().endswith(
        "gateway dev: stopping; press Ctrl-C again to stop at once\ngateway dev: stopped\n"
    )
