"""The lock lists, read as pip reads them."""

from __future__ import annotations

import re
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
LISTS = sorted(
    path.relative_to(TOP)
    for path in [*TOP.glob("locked/*.txt"), *TOP.glob("*/peers/*/locked.txt"), TOP / "scripts/measure_libraries.txt"]
)
_ENTRY = re.compile(r"([\w.-]+)==([\w.+!]+)(?: ; [^\\]+)?((?: --hash=sha256:[0-9a-f]{64})+)")


def canonical(name: str) -> str:
    """Return a distribution's name as PEP 503 normalises it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def required(requirements: list[str]) -> set[str]:
    return {canonical(re.split(r"[^A-Za-z0-9._-]", requirement)[0]) for requirement in requirements}


def entries(file: Path) -> dict[str, str]:
    """Return the joined lines of a list by the name of their distribution. Fails for a line without a hash."""
    lines = [line for line in (TOP / file).read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r" *\\\n *", " ", "\n".join(lines)).splitlines()
    wrong = [line for line in joined if not _ENTRY.fullmatch(line)]
    assert wrong == [], file
    return {canonical(line.partition("==")[0]): line for line in joined}


def pins(file: Path) -> dict[str, str]:
    """Return the version of each distribution in a list."""
    return {name: re.split(r"[ ;]", line.partition("==")[2])[0] for name, line in entries(file).items()}
