"""The layout of a chart: nothing overlaps, and everything can be read. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

TIME_STEPS = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)
LATENCY_STEPS = tuple(digit * 10.0**power for power in range(-5, 5) for digit in (1, 2, 5))
UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))


class Span(NamedTuple):
    """The room that a label takes from left to right. An event's label begins at the event's mark."""

    left: float
    right: float

    def overlaps(self, other: Span) -> bool:
        """Whether both claim the same room."""
        return self.left < other.right and other.left < self.right


class Badge(NamedTuple):
    """One mark for events that lie too close together for marks of their own, numbered from 1."""

    x: float
    first: int
    last: int

    @property
    def text(self) -> str:
        """The text of the mark: `3`, or `3-5`."""
        return str(self.first) if self.first == self.last else f"{self.first}\N{EN DASH}{self.last}"


def lanes(labels: Sequence[Span]) -> list[int]:
    """Put labels like flags on poles, as low as they can: lane 0 is the lowest.

    Labels of one lane never overlap, and no pole crosses another's label: labels further right are lower.

    Args:
        labels: by their left ends, in ascending order.
    """
    found = [0] * len(labels)
    for index in range(len(labels) - 1, -1, -1):
        below = [found[other] for other in range(index + 1, len(labels)) if labels[index].overlaps(labels[other])]
        found[index] = max(below, default=-1) + 1
    return found


def badges(places: Sequence[float], single: float, ranged: float) -> list[Badge]:
    """Assign numbers to events. Each gets its own badge if there is room; events too close together share one.

    Args:
        places: where the events are, in ascending order.
        single: the room that a badge with one number takes.
        ranged: the room that a badge with two numbers takes.
    """

    def room(badge: Badge) -> float:
        return single if badge.first == badge.last else ranged

    found: list[Badge] = []
    for number, place in enumerate(places, 1):
        found.append(Badge(place, number, number))
        while len(found) > 1 and found[-1].x - found[-2].x < (room(found[-1]) + room(found[-2])) / 2:
            last, first = found.pop().last, found.pop().first
            found.append(Badge(sum(places[first - 1 : last]) / (last - first + 1), first, last))
    return found


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move places at least `gap` apart, as near as possible to where they are wanted.

    Args:
        wanted: the places, in ascending order, which is kept.
        gap: the distance of neighbours, if there is room.
        low: the lowest place.
        high: the highest place.
    """
    gap = min(gap, (high - low) / max(1, len(wanted) - 1))
    groups: list[tuple[float, int]] = []
    """The lowest place and the size of neighbours that touch."""
    for place in wanted:
        start, size = _within(place, 1, gap, low, high)
        while groups and groups[-1][0] + groups[-1][1] * gap > start:
            before, count = groups.pop()
            # Each member of either group votes for the start that puts it where it was wanted.
            merged = (before * count + (start - count * gap) * size) / (count + size)
            start, size = _within(merged, count + size, gap, low, high)
        groups.append((start, size))
    return [start + index * gap for start, size in groups for index in range(size)]


def _within(start: float, size: int, gap: float, low: float, high: float) -> tuple[float, int]:
    return max(low, min(start, high - (size - 1) * gap)), size


def time_ticks(seconds: float, most: int) -> list[float]:
    """Return at most `most` round times, besides 0, up to the end of a run of this length."""
    days = math.ceil(seconds / most / TIME_STEPS[-1]) * TIME_STEPS[-1]
    step = next((step for step in TIME_STEPS if seconds / step <= most), days)
    return [index * step for index in range(int(seconds / step) + 1)]


def latency_ticks(low: float, high: float, most: int) -> list[float]:
    """Return at most `most` round latencies between two, for a logarithmic axis."""
    inside = [step for step in LATENCY_STEPS if low <= step <= high]
    powers = [step for step in inside if f"{step:e}".startswith("1.0")]
    for found in (inside, powers):
        if len(found) <= most:
            return found
    return powers[:: -(-len(powers) // most)]


def clock(seconds: float, whole: float) -> str:
    """Write a time of a run of that length: `12 s`, `3:05`, or `1:30 h`."""
    if whole < 120:
        return f"{seconds:g} s"
    if whole < 7200:
        return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
    return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02} h"


def duration(seconds: float) -> str:
    """Write a latency with its unit and about two digits: `850 µs`, `4.2 ms`, `31 ms`, `1.5 s`."""
    unit, size = next(((unit, size) for unit, size in UNITS if seconds >= size * 0.9995), UNITS[-1])
    value = seconds / size
    return f"{value:.0f} {unit}" if value >= 9.95 else f"{value:.1f}".removesuffix(".0") + f" {unit}"


def squeeze(text: str, most: int) -> str:
    """Make a text one line of at most `most` printable characters; a text that is too long keeps both ends."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    if len(line) <= most:
        return line
    head = most // 2
    return line[:head] + "…" + line[len(line) - (most - head - 1) :]
