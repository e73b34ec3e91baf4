"""Copies of the tree, in which readings are disconnected and tests run."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from scripts.compiled import TOP, files
from scripts.disconnected.readings import Reading, default_of, disconnect

TEST_SECONDS: Final = 60
RUN_SECONDS: Final = 300
BASELINE_SECONDS: Final = 600

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(
    [
        *("pytest", "pytest_asyncio", "hypothesis", "xdist.plugin", "fastapi", "httpx", "mcp"),
        *("jsonschema_rs", "jwt", "prometheus_client", "pydantic_settings", "redis.asyncio", "shtab", "uvicorn"),
        "cryptography.hazmat.primitives.asymmetric.rsa",
    ]
)


@dataclass(frozen=True, slots=True)
class Marked:
    """A marked test: its id for pytest, the settings it is marked with, how long it took, and whether it passed."""

    test: str
    settings: list[str]
    seconds: float
    passed: bool


class Copy:
    """A copy of the tree, in which one reading at a time is disconnected.

    Args:
        folder: where to put it.
    """

    def __init__(self, folder: Path) -> None:
        self._top = folder
        self._changes = itertools.count(1)
        for path in files(TOP):
            to = folder / path.relative_to(TOP)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, to)

    def run_marked(self, paths: list[str]) -> list[Marked]:
        """Run all marked tests of these files on the unchanged code.

        Raises:
            RuntimeError: pytest could not run them.
        """
        report = self._top / "marked.json"
        code, output = self._pytest(
            BASELINE_SECONDS, "-p", "scripts.disconnected.plugin", f"--marked-report={report}", *paths
        )
        if code not in (0, 1) or not report.exists():
            raise RuntimeError(output)
        return [Marked(**each) for each in json.loads(report.read_text())]

    def noticed_by(self, reading: Reading, tests: list[str]) -> str | None:
        """Return the first of these tests that fails without the reading; None if all pass or cannot run."""
        path = self._top / reading.path
        source = path.read_bytes()
        self._write(path, disconnect(source, reading, default_of(reading.field)))
        try:
            code, output = self._pytest(RUN_SECONDS, "-x", f"--timeout={TEST_SECONDS}", *tests)
        finally:
            self._write(path, source)
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
        if code == 1 and failed:
            return failed[1]
        if code != 0:
            print(output)
        return None

    def _write(self, path: Path, source: bytes) -> None:
        """Write a file with a time of its own, by which Python recognizes outdated bytecode."""
        path.write_bytes(source)
        os.utime(path, (next(self._changes),) * 2)

    def _pytest(self, seconds: float, *arguments: str) -> tuple[int | None, str]:
        """Run pytest here and return its exit code, None if it took too long, and its output."""
        output = self._top / "output.txt"
        process = _forks.Process(target=run_pytest, args=(self._top, output, arguments))
        process.start()
        process.join(seconds)
        if process.is_alive():
            process.kill()
            process.join()
            return None, f"pytest took more than {seconds} seconds: {' '.join(arguments)}\n{output.read_text()}"
        return process.exitcode, output.read_text()


def run_pytest(top: Path, output: Path, arguments: tuple[str, ...]) -> None:
    """Run pytest in a copy, as the only task of this process.

    The process is forked from one that has imported what the tests need from elsewhere, and nothing of ours.
    """
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    for name in [name for name in os.environ if name.startswith(("GATEWAY_", "PYTHON"))]:
        del os.environ[name]
    for name in [name for name in sys.modules if name.partition(".")[0] in ("gateway", "scripts", "tests", "loadtest")]:
        del sys.modules[name]
    os.environ["PYTHONPATH"] = f"{top}{os.pathsep}{top / 'workers'}"
    sys.path[:0] = [str(top), str(top / "workers")]
    sys.dont_write_bytecode = False
    os.chdir(top)
    imported_before = "ignore::pytest.PytestAssertRewriteWarning"
    sys.exit(pytest.main(["-n", "0", "-q", "-p", "no:cacheprovider", "-W", imported_before, *arguments]))
