"""The two releases: this one, and the one before it in an environment of its own, which `make releases` sets up."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.runtime.version import __version__
from loadtest.cluster import REPOSITORY

NAMED: Final = Path(__file__).parent / "previous.txt"
"""Names the previous release: its commit in the first line, its version in the second."""

INSTALLED: Final = REPOSITORY / ".venvs/previous"


@dataclass(frozen=True)
class Release:
    """One of the two releases.

    Attributes:
        version: its version, which the names of its processes begin with.
        python: the interpreter of its environment.
        sources: the folder with its packages.
    """

    version: str
    python: str
    sources: Path


THIS: Final = Release(__version__, sys.executable, REPOSITORY)


def previous() -> Release:
    """Return the release that the file names.

    Raises:
        RuntimeError: it is not installed.
    """
    commit, version = NAMED.read_text().split()
    installed = INSTALLED / "commit"
    if not installed.is_file() or installed.read_text().strip() != commit:
        raise RuntimeError(f"release {version} is not installed in {INSTALLED}: run make releases")
    return Release(version, str(INSTALLED / "venv/bin/python"), INSTALLED / "source")
