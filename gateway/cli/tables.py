"""Tables, durations and times for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

_UNITS: Final = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def table(*rows: Sequence[object]) -> Iterator[str]:
    """Yield rows as lines with aligned columns, each cell as `plain` text."""
    cells = [[plain(str(value)) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def plain(text: str) -> str:
    """Replace everything but visible ASCII in a text that comes from another machine."""
    return "".join(char if " " <= char <= "~" else "?" for char in text)


def duration(seconds: float) -> str:
    """Return a duration in its two largest units, such as `2h 5m`."""
    rest = max(0, int(seconds))
    parts: list[str] = []
    for unit, size in _UNITS:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2]) or "0s"


def moment(ms: int) -> str:
    """Return a time in milliseconds since the epoch as in the log."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
