"""What a run was made with: the gateway's version and commit, and the machine. Neither its name nor any path."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from gateway import __version__
from gateway.compilation import is_compiled
from loadtest.cluster import REPOSITORY

GIT_SECONDS = 10
MEMINFO = Path("/proc/meminfo")


def program(top: Path = REPOSITORY) -> dict[str, Any]:
    """Return the version of the gateway, whether it is compiled, and its commit; no commit outside a checkout."""
    commit = _git(top, "rev-parse", "--short=12", "HEAD")
    return {
        "version": __version__,
        "compiled": is_compiled(),
        **({} if commit is None else {"commit": commit, "changed": _git(top, "status", "--porcelain") != ""}),
    }


def machine() -> dict[str, Any]:
    """Return what the speed of a run depends on."""
    memory = _memory_bytes()
    return {
        "cores": os.cpu_count(),
        **({} if memory is None else {"memory_bytes": memory}),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "kernel": f"{platform.system()} {platform.release()}",
    }


def _git(top: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=top, capture_output=True, text=True, check=True, timeout=GIT_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _memory_bytes() -> int | None:
    try:
        return int(MEMINFO.read_text(encoding="ascii").split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
