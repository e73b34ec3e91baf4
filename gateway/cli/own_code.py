"""Makes sure that this code runs, whatever is in the working directory."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

TOP: Final = Path(__file__).resolve().parents[2]
"""The folder that contains this package: a checkout, or a folder of installed packages."""

START_GATEWAY: Final = (sys.executable, "-P", "-m", "gateway")
"""The command that starts the gateway. With `-P`, Python does not search the working directory first."""


def pin_own_code(environ: MutableMapping[str, str]) -> None:
    """Make processes that `START_GATEWAY` starts in this environment run the same code as this process."""
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), site.getusersitepackages()}
    if TOP not in (Path(folder).resolve() for folder in installed):
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(TOP), environ.get("PYTHONPATH"))))


def find_own_workers() -> None:
    """In a checkout, where the workers are in a separate folder, put that folder first on the import path."""
    beside = TOP / "workers"
    if (beside / "gateway_workers").is_dir():
        sys.path.insert(0, str(beside))


def import_from_working_directory() -> None:
    """Put the working directory last on the import path, so tool modules are found in it however this was started.

    Python itself puts it first, where a file called `redis.py` hides the library. It stays first only if PYTHONPATH
    names it.
    """
    here = str(Path.cwd())
    wanted = {str(Path(folder).resolve()) for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder}
    if here not in wanted:
        sys.path[:] = [folder for folder in sys.path if folder not in ("", here)]
        sys.path.append(here)
