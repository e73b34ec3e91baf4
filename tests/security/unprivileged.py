"""Runs processes as a user without any power, also where root's home has the interpreter and the sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtest.cluster import REPOSITORY

NOBODY = 65534
_LEFT_OUT = shutil.ignore_patterns("site-packages", "test", "idlelib", "tkinter")


@dataclass(frozen=True)
class Unprivileged:
    """A user without power, and what it can run.

    Attributes:
        folder: its own.
        python: an interpreter.
        variables: what that needs to find the gateway.
    """

    folder: Path
    python: str
    variables: Mapping[str, str]

    def start(self, command: Sequence[str], env: Mapping[str, str], **options: Any) -> subprocess.Popen[str]:
        """Start a command with these variables alone, and those that the interpreter needs."""
        nobody = NOBODY if os.geteuid() == 0 else None
        given = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "TMPDIR": str(self.folder)}
        return subprocess.Popen(
            command,
            env={**given, **self.variables, **env},
            cwd=self.folder,
            text=True,
            user=nobody,
            group=nobody,
            extra_groups=None if nobody is None else (),
            **options,
        )

    def write(self, name: str, text: str) -> Path:
        """Write a file that only this user can read."""
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o600)
        if os.geteuid() == 0:
            os.chown(path, NOBODY, NOBODY)
        return path


@contextmanager
def unprivileged() -> Iterator[Unprivileged]:
    """Return the user of this process, or nobody if that is root. Everything is copied that nobody needs."""
    with tempfile.TemporaryDirectory(prefix="gw-") as made:
        top = Path(made)
        if os.geteuid() != 0:
            yield Unprivileged(top, sys.executable, {"PYTHONPATH": str(REPOSITORY)})
            return
        top.chmod(0o755)
        folder = top / "own"
        folder.mkdir()
        os.chown(folder, NOBODY, NOBODY)
        yield Unprivileged(folder, *_copied(top / "copy"))


def _copied(place: Path) -> tuple[str, Mapping[str, str]]:
    """Copy the interpreter, the installed packages and the sources, by links where that is possible."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    interpreter = Path(sys.executable).resolve()
    python = place / "bin" / version
    python.parent.mkdir(parents=True)
    _copy(str(interpreter), str(python))
    stdlib = place / "lib" / version
    shutil.copytree(sysconfig.get_path("stdlib"), stdlib, copy_function=_copy, ignore=_LEFT_OUT)
    for library in interpreter.parents[1].glob("lib/libpython3*"):
        _copy(str(library.resolve()), str(place / "lib" / library.name))
    shutil.copytree(sysconfig.get_path("purelib"), place / "packages", copy_function=_copy)
    for name in ("gateway", "workers", "tests"):
        shutil.copytree(REPOSITORY / name, place / "sources" / name, copy_function=_copy)
    for extension in REPOSITORY.glob("*.so"):
        _copy(str(extension), str(place / "sources" / extension.name))
    paths = os.pathsep.join((str(place / "sources"), str(place / "packages")))
    return str(python), {"PYTHONPATH": paths, "LD_LIBRARY_PATH": str(place / "lib")}


def _copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # it is on another file system
        shutil.copyfile(source, target)
        shutil.copymode(source, target)
