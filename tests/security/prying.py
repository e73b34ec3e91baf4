"""A program that reads the variables, the arguments and the open files of all processes, and reports secrets.

`python prying.py SECRETS REPORT`: the first file has one secret a line, turned around. The second one gets a line for
each find: a JSON object that has the number of the secret. It is also a program of an upstream that never answers. Only
the standard library is used.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_MOST_BYTES = 1 << 20


def seen_of(process: Path) -> Iterator[tuple[str, bytes]]:
    """Yield what can be read of a process, and where."""
    for name in ("environ", "cmdline"):
        with contextlib.suppress(OSError):
            yield name, (process / name).read_bytes()
    with contextlib.suppress(OSError):
        for link in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                if stat.S_ISREG(link.stat().st_mode):
                    with link.open("rb") as file:
                        yield f"fd of {link.readlink()}", file.read(_MOST_BYTES)


def age_of(process: Path) -> float:
    """Return for how many seconds a process has run."""
    with contextlib.suppress(OSError):
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / _TICKS
    return -1.0


def main() -> None:
    secrets_file, report_file = map(Path, sys.argv[1:])
    secrets = [line[::-1] for line in secrets_file.read_bytes().split()]
    own = f"/proc/{os.getpid()}"
    rounds = 0
    with report_file.open("a", buffering=1) as report:
        while True:
            for process in Path("/proc").iterdir():
                if not process.name.isdigit() or str(process) == own:
                    continue
                for where, content in seen_of(process):
                    numbers = [number for number, secret in enumerate(secrets) if secret in content]
                    if numbers:
                        found = {"where": where, "secrets": numbers, "age": age_of(process), "at": time.time()}
                        with contextlib.suppress(OSError):
                            found["command"] = (process / "cmdline").read_bytes().decode("utf-8", "replace")
                        report.write(json.dumps(found) + "\n")
            rounds += 1
            report.write(json.dumps({"rounds": rounds, "by": os.getpid()}) + "\n")


if __name__ == "__main__":
    main()
