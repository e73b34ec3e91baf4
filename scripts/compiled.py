"""Keep `build/compiled`: a copy of the repository in which the modules of the hot path are compiled.

Programs started there run on compiled code; the original tree never has an extension module. Only changed files are
copied, and only changes to compiled modules or their dependencies start the compiler.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

TOP: Final = Path(__file__).resolve().parent.parent
COPY: Final = TOP / "build/compiled"
STAMP: Final = COPY / ".compiled"
SHARED: Final = (".venv", ".venvs", "reports")
"""Directories that the copy shares with the original."""
NOT_COPIED: Final = (".*", "build", "dist", "htmlcov", "reports", "node_modules", "__pycache__", "*.egg-info")
EXTENSION_MODULES: Final = "*.so"
COMPILED_FROM: Final = ("setup.py", "pyproject.toml", "locked/development.txt", "gateway/*.py")
"""The files that extension modules depend on: a compiled module knows the types of all its imports."""


def main() -> int:
    """Update the copy, compile it if necessary, and return the exit code of the compiler."""
    COPY.mkdir(parents=True, exist_ok=True)
    for name in SHARED:
        share(name)
    changed = different()
    if any(fnmatch(str(path), pattern) for path in changed for pattern in COMPILED_FROM):
        STAMP.unlink(missing_ok=True)
    for path in changed:
        replace(path)
    if STAMP.is_file() and STAMP.read_text() == sys.version:
        return 0
    code = compile_copy()
    if code == 0:
        STAMP.write_text(sys.version)
    return code


def share(name: str) -> None:
    """Let the copy use a directory of the original."""
    (TOP / name).mkdir(exist_ok=True)
    link = COPY / name
    if not link.is_symlink():
        link.symlink_to(Path(os.path.relpath(TOP / name, COPY)), target_is_directory=True)


def different() -> list[Path]:
    """Return the files that only one side has, and those whose time or size differs."""
    there, here = states(TOP), states(COPY)
    return sorted(path for path in there.keys() | here.keys() if there.get(path) != here.get(path))


def states(top: Path) -> dict[Path, tuple[int, int]]:
    """Return the modification time in nanoseconds and the size in bytes of each file of a tree."""
    found = {path: path.stat() for path in files(top)}
    return {path.relative_to(top): (status.st_mtime_ns, status.st_size) for path, status in found.items()}


def files(top: Path) -> Iterator[Path]:
    """Yield the files of a tree that are copied."""
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if not any(fnmatch(name, pattern) for pattern in NOT_COPIED)]
        for name in names:
            if not any(fnmatch(name, pattern) for pattern in (".*", EXTENSION_MODULES)):
                yield Path(folder, name)


def replace(path: Path) -> None:
    """Make one file of the copy the same as in the original, or delete it."""
    if (TOP / path).exists():
        (COPY / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(TOP / path, COPY / path)
    else:
        (COPY / path).unlink()


def compile_copy() -> int:
    """Compile the modules in place, silently unless it fails."""
    print("Compiling the hot path into build/compiled; this takes a minute.", file=sys.stderr, flush=True)
    for module in [*COPY.glob(EXTENSION_MODULES), *COPY.glob(f"gateway/**/{EXTENSION_MODULES}")]:
        module.unlink()  # also those of modules that are no longer compiled
    done = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace", "--parallel", str(os.cpu_count())],
        cwd=COPY,
        env={**os.environ, "SEALED_GATEWAY_COMPILE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        print(done.stdout, file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
