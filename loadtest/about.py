"""The facts about a run: the gateway's version and commit, and the machine, without its name or any path."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from loadtest.cluster import REPOSITORY

SECONDS = 10
"""How long a program may take to print a fact."""
MEMINFO = Path("/proc/meminfo")


def program(top: Path = REPOSITORY) -> dict[str, Any]:
    """Return the version of the gateway, whether it is compiled, and its commit; no commit outside a checkout."""
    version = _said_by([sys.executable, "-m", "gateway", "--version"], REPOSITORY)
    commit = _said_by(["git", "rev-parse", "--short=12", "HEAD"], top)
    changed = _said_by(["git", "status", "--porcelain"], top) != ""
    return {"version": version or "unknown", **({} if commit is None else {"commit": commit, "changed": changed})}


def machine() -> dict[str, Any]:
    """Return the facts about this machine that the speed of a run depends on."""
    memory = _memory_bytes()
    return {
        "cores": os.cpu_count(),
        **({} if memory is None else {"memory_bytes": memory}),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "kernel": f"{platform.system()} {platform.release()}",
    }


def _said_by(command: list[str], directory: Path) -> str | None:
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True, timeout=SECONDS)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _memory_bytes() -> int | None:
    try:
        return int(MEMINFO.read_text(encoding="ascii").split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
