"""A killed process leaves nothing of npx, of uvx, nor of a program that ignores all requests to end.

Both launchers are the real ones. They run a package that is there already, so that nothing is loaded from a network.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from loadtest.cluster import clean_environment, wait_until
from tests.children.running import below, marker
from tests.integration.frameworks.known import PEERS
from tests.upstreams.site import Site

SERVER = Path(__file__).parents[2] / "upstreams/servers/stdio.py"
NODE = PEERS / "published/bin/node"
MEMORY = "@modelcontextprotocol/server-memory"
SECONDS = 5


@pytest.fixture(scope="module")
def mark() -> str:
    return marker()


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory, mark: str) -> Mapping[str, Any]:
    folder = tmp_path_factory.mktemp("launched")
    npx = NODE.resolve().parents[1] / "lib/node_modules/npm/bin/npx-cli.js"
    uvx = folder / "launcher"  # under its own name, the gateway would run what it starts
    uvx.symlink_to(PEERS / "stdio-servers/bin/uvx")
    cache = {"UV_CACHE_DIR": str(folder / "cache"), "UV_TOOL_DIR": str(folder / "tools")}
    options = ["--offline", "--no-config", "--python", sys.executable, "--from", str(wheel(folder))]
    return {
        "npx": {
            "command": str(NODE),
            "args": [str(npx), "--offline", "-y", MEMORY],
            "cwd": str(PEERS / "published"),
            "env": {"PATH": f"{NODE.parent}:{os.environ['PATH']}", "MEMORY_FILE_PATH": str(folder / "memory")},
            "gateway": {},
        },
        "uvx": {"command": str(uvx), "args": [*options, "stub", "noisy"], "env": cache, "gateway": {}},
        "stubborn": {"command": sys.executable, "args": ["-S", str(SERVER), "stubborn", mark], "gateway": {}},
    }


def wheel(folder: Path) -> Path:
    """Make a package with the server of the tests, whose program is `stub`."""
    path, about = folder / "stub-1-py3-none-any.whl", "stub-1.dist-info"
    files = {
        "stub.py": SERVER.read_text(),
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: stub\nVersion: 1\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": "[console_scripts]\nstub = stub:main\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{about}/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**files, f"{about}/RECORD": record}.items():
            archive.writestr(name, text)
    return path


def commands(pids: set[int]) -> Iterator[str]:
    for pid in pids:
        try:
            yield Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
        except OSError:
            continue


def run_all(pid: int, mark: str, processes: int) -> bool:
    """Return whether so many gateway processes below one run all programs, with what their launchers have left."""
    found = list(commands(below(pid)))
    wanted = ("npm exec", "sh -c", "node_modules/.bin", "uv tool uvx", "bin/stub noisy", mark)
    return all(sum(each in command for command in found) >= processes for each in wanted)


def wait_none_left(pids: set[int]) -> None:
    wait_until(lambda: not any(commands(pids)), "the end of all processes", SECONDS)


def test_nothing_is_left_of_them_5_seconds_after_a_replica_was_killed(
    entries: Mapping[str, Any], mark: str, tmp_path: Path
) -> None:
    with Site(tmp_path, entries, names=("r1",)) as site:
        site.wait_listed()
        (replica,) = site.replicas
        assert replica.pid is not None
        assert run_all(replica.pid, mark, 1), list(commands(below(replica.pid)))
        pids = below(replica.pid)
        replica.kill()
        wait_none_left(pids)


def test_nothing_is_left_of_them_5_seconds_after_dev_was_killed(
    entries: Mapping[str, Any], mark: str, tmp_path: Path
) -> None:
    file = tmp_path / "upstreams.json"
    file.write_text(json.dumps({"mcpServers": entries}))
    command = [sys.executable, "-m", "gateway", "dev", "--port", "0", "--workers", "0", "--upstreams", str(file)]
    env = clean_environment({"GATEWAY_METRICS_PORT": "off"})
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, env=env, stdout=log, stderr=log) as dev:
        try:
            wait_until(lambda: run_all(dev.pid, mark, 1), "the programs of the holder")
            pids = below(dev.pid)
        finally:
            dev.kill()
        wait_none_left(pids)
