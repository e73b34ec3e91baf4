"""The functions that a difference comes from: instructions by function, now and when the numbers were accepted.

The earlier ones are counted again only if a number differs, in the commit that last changed the accepted numbers.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

from bench.counts.meters import TOP

FILE: Final = TOP / "reports" / "counts_functions.json"
"""The file with all differences: case → function → before and now."""

SHOWN_FUNCTIONS: Final = 5

ByCase: TypeAlias = Mapping[str, Mapping[str, int]]
"""Case → function → instructions."""


def count_before(numbers: Path) -> ByCase:
    """Count the code of the commit that last changed a file of accepted numbers; return {} if there is none."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        found = folder / "functions.json"
        try:
            commit = _run(TOP, "git", "log", "-1", "--format=%H", "--", str(numbers)).strip()
            _run(TOP, "git", "archive", f"--output={folder / 'code.tar'}", commit)
            shutil.unpack_archive(folder / "code.tar", folder / "code")
            _run(folder / "code", sys.executable, "-m", "bench.counts", "--functions-to", str(found))
        except (OSError, subprocess.CalledProcessError):
            return {}
        functions: ByCase = json.loads(found.read_text())
        return functions


def write(path: Path, functions: Mapping[str, Mapping[str, object]]) -> None:
    """Write the counts of each function."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(functions, indent=1, sort_keys=True) + "\n")


def changed(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return the functions whose instructions differ, before and now, largest difference first."""
    pairs = {name: (before.get(name, 0), now.get(name, 0)) for name in before.keys() | now.keys()}
    most = sorted(pairs.items(), key=lambda item: (-abs(item[1][1] - item[1][0]), item[0]))
    return {name: (was, is_now) for name, (was, is_now) in most if was != is_now}


def in_words(functions: Mapping[str, tuple[int, int]]) -> str:
    """Name the functions that differ most."""
    most = list(functions.items())[:SHOWN_FUNCTIONS]
    return ", ".join(f"{name} {is_now - was:+,}" for name, (was, is_now) in most)


def _run(folder: Path, *command: str) -> str:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
