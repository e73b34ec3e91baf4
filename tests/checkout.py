"""Copies of this checkout, so that a build leaves nothing in it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from tests.locked_lists import TOP

SOURCES: Final = ("gateway", "gateway_pytest", "workers", "pyproject.toml", "setup.py", "README.md", "LICENSE")
"""The files and folders of a wheel's build."""


def copy_sources(folder: Path, *others: str) -> None:
    """Copy these, and other files and folders of the checkout, into a folder."""
    for name in (*SOURCES, *others):
        if (TOP / name).is_dir():
            shutil.copytree(TOP / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        else:
            shutil.copy(TOP / name, folder)
