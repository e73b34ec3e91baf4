"""Run pip and show its progress on stderr. Errors are shown unchanged; warnings are hidden.

Usage: pip_progress.py NAME PIP-ARGUMENT…, with the Python to install packages for. NAME is the environment's name.
On a terminal, one line counts the packages; elsewhere, as in the log of a build, there is a line every ten seconds.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

TERMINAL_SECONDS: Final = 0.5
LOG_SECONDS: Final = 10.0
_FETCHES: Final = re.compile(r"(Collecting|Processing|Obtaining|Requirement already satisfied:) ")
_INSTALLS: Final = "Installing collected packages: "


class Progress:
    """Counts packages by pip's output, and by the installed folders.

    Args:
        name: the environment's name.
        wanted: how many packages to install.
        folder: where they are installed.
    """

    def __init__(self, name: str, wanted: int, folder: Path) -> None:
        self._name = name
        self._wanted = wanted
        self._folder = folder
        self._fetched = 0
        self._to_install = 0
        self._began = time.time()

    def read(self, lines: Iterable[str]) -> None:
        """Read pip's stdout."""
        for line in lines:
            if _FETCHES.match(line):
                self._fetched += 1
            elif line.startswith("Ignoring "):  # for another system
                self._wanted -= 1
            elif line.startswith(_INSTALLS):
                self._to_install = len(line.removeprefix(_INSTALLS).split(","))

    def told(self) -> str:
        """Return the progress as text. pip prints nothing while it installs, after it has fetched everything."""
        if self._to_install:
            return self._line(f"{self._installed()} of {_packages(self._to_install)} installed")
        return self._line(f"{self._fetched} of {_packages(self._wanted)} fetched")

    def told_at_end(self) -> str:
        """Return the final line."""
        return self._line(f"{_packages(self._wanted)} checked, {self._to_install} installed")

    def _line(self, text: str) -> str:
        return f"{self._name}: {text} ({time.time() - self._began:.0f} s)"

    def _installed(self) -> int:
        count = sum(entry.stat().st_mtime > self._began - 1 for entry in self._folder.glob("*.dist-info"))
        return min(count, self._to_install)


def _packages(count: int) -> str:
    return "1 package" if count == 1 else f"{count} packages"


def count_wanted(arguments: Sequence[str]) -> int:
    """Count the packages that pip's arguments ask for: the entries of lists, or one."""
    lists = [Path(value) for option, value in pairwise(arguments) if option == "--requirement"]
    return sum(bool(re.match(r"\w", line)) for path in lists for line in path.read_text().splitlines()) or 1


def main(arguments: Sequence[str]) -> int:
    """Run pip; return its exit code."""
    name, *pip_arguments = arguments
    progress = Progress(name, count_wanted(pip_arguments), Path(sysconfig.get_path("purelib")))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *pip_arguments]
    process = subprocess.Popen(
        [*pip, "--progress-bar", "off"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
    )
    is_terminal = sys.stderr.isatty()
    readers = [
        threading.Thread(target=progress.read, args=[process.stdout]),
        threading.Thread(target=_pass_errors, args=[process.stderr]),
    ]
    for reader in readers:
        reader.start()
    while True:
        try:
            code = process.wait(TERMINAL_SECONDS if is_terminal else LOG_SECONDS)
            break
        except subprocess.TimeoutExpired:
            # The cursor returns to the start of the line, so an error replaces the text.
            sys.stderr.write(f"\x1b[K{progress.told()}\r" if is_terminal else f"{progress.told()}\n")
            sys.stderr.flush()
    for reader in readers:
        reader.join()
    if code == 0:
        sys.stderr.write(("\x1b[K" if is_terminal else "") + progress.told_at_end() + "\n")
    return code


def _pass_errors(lines: Iterable[str]) -> None:
    for line in lines:
        if not line.startswith(("WARNING: ", "DEPRECATION: ")):
            sys.stderr.write(line)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:  # pip got it too
        sys.exit(130)
