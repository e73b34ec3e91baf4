"""The accepted numbers by minor version of Python, and differences from them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from bench.counts.meters import TOP
from bench.counts.run import Counted

NUMBERS: Final = TOP / "bench" / "counts.json"
PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"

TOLERANCE: Final = {"python_calls": 0.02, "builtin_calls": 0.02, "instructions": 0.02, "peak_bytes": 0.05}
SLACK: Final = {"python_calls": 3, "builtin_calls": 3, "instructions": 30, "peak_bytes": 1024}
"""The allowed difference, as a share and in absolute terms. Memory grows in steps, when a list is resized."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A number that is not as accepted.

    Attributes:
        what: the name of the number.
        accepted: the accepted number, None for a new case.
        counted: the current number, None for a removed case.
    """

    case: str
    what: str
    accepted: int | None
    counted: int | None

    @property
    def is_worse(self) -> bool:
        """Whether it has grown."""
        return self.accepted is not None and self.counted is not None and self.counted > self.accepted

    def __str__(self) -> str:
        if self.accepted is None or self.counted is None:
            return f"{self.case}: " + ("is new" if self.accepted is None else "is no longer counted")
        share = (self.counted - self.accepted) / self.accepted
        return f"{self.case}: {self.what} {self.accepted:,} -> {self.counted:,} ({share:+.1%})"


@dataclass(slots=True)
class Accepted:
    """The numbers of one minor version of Python.

    Attributes:
        numbers: case → name → number.
        raised: the reasons for which higher numbers were accepted, with these numbers.
    """

    numbers: dict[str, dict[str, int]] = field(default_factory=dict)
    raised: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def load(cls, python: str = PYTHON, numbers: Path = NUMBERS) -> Self:
        """Read them; a version without accepted numbers has none."""
        given = _read(numbers).get(python, {})
        return cls(given.get("cases", {}), given.get("raised", []))

    def save(self, python: str = PYTHON, numbers: Path = NUMBERS) -> None:
        """Write them, and keep those of other versions."""
        _write(numbers, _read(numbers) | {python: {"cases": self.numbers, "raised": self.raised}})

    def differences(self, counted: Mapping[str, Counted]) -> Iterator[Difference]:
        """Yield the numbers that differ by more than allowed, in either direction."""
        for case, now in counted.items():
            was = self.numbers.get(case)
            if was is None:
                yield Difference(case, "", None, 0)
                continue
            for what, number in now.numbers.items():
                if differs(what, was[what], number):
                    yield Difference(case, what, was[what], number)
        for case in self.numbers.keys() - counted.keys():
            yield Difference(case, "", 0, None)

    def lower(self, counted: Mapping[str, Counted]) -> None:
        """Accept lower numbers, new cases and removed cases; no number rises."""
        self.numbers = {
            case: {
                what: min(number, self.numbers.get(case, {}).get(what, number)) for what, number in now.numbers.items()
            }
            for case, now in counted.items()
        }

    def replace(self, counted: Mapping[str, Counted], reason: str) -> None:
        """Accept all numbers, including higher ones, and record the reason."""
        risen = [difference for difference in self.differences(counted) if difference.is_worse]
        if risen:
            cases = {f"{rise.case}: {rise.what}": [rise.accepted, rise.counted] for rise in risen}
            self.raised.append({"reason": reason, "cases": cases})
        self.numbers = {case: dict(now.numbers) for case, now in counted.items()}


def differs(what: str, accepted: int, counted: int) -> bool:
    """Return whether a number differs from the accepted one by more than allowed."""
    return abs(counted - accepted) > max(TOLERANCE[what] * accepted, SLACK[what])


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return content


def _write(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON with one line per case, so that a change touches few lines."""
    path.write_text(_lines(content, levels=3) + "\n")


def _lines(value: Any, levels: int, indent: str = "") -> str:
    if not levels or not value or not isinstance(value, (dict, list)):
        return json.dumps(value)
    inner = indent + "  "
    if isinstance(value, list):
        return "[\n" + ",\n".join(inner + _lines(item, levels - 1, inner) for item in value) + f"\n{indent}]"
    parts = (f"{inner}{json.dumps(name)}: {_lines(item, levels - 1, inner)}" for name, item in value.items())
    return "{\n" + ",\n".join(parts) + f"\n{indent}}}"
