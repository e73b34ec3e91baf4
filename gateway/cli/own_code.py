"""Which code runs: this one, whatever lies in the working directory."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

TOP: Final = Path(__file__).resolve().parents[2]
"""The folder that this package lies in: that of a checkout, or one where packages are installed."""

START_GATEWAY: Final = (sys.executable, "-P", "-m", "gateway")
"""Starts a command of the gateway. With `-P`, Python does not look in the working directory first."""


def pin_own_code(environ: MutableMapping[str, str]) -> None:
    """Let processes with this environment, started with `START_GATEWAY`, run this very code, installed or not."""
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), site.getusersitepackages()}
    if TOP not in (Path(folder).resolve() for folder in installed):
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(TOP), environ.get("PYTHONPATH"))))


def find_own_workers() -> None:
    """Find the workers that belong to this code first: in a checkout they lie in a folder of their own."""
    beside = TOP / "workers"
    if (beside / "gateway_workers").is_dir():
        sys.path.insert(0, str(beside))


def import_from_working_directory() -> None:
    """Find tool modules in the working directory, however this was started, but behind all that is installed.

    Python itself puts it first, where a file called `redis.py` hides a library. It stays there only if
    PYTHONPATH says so.
    """
    here = str(Path.cwd())
    wanted = {str(Path(folder).resolve()) for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder}
    if here not in wanted:
        sys.path[:] = [folder for folder in sys.path if folder not in ("", here)]
        sys.path.append(here)
