"""The rates of a run, from one event to the next. Computed from the raw data alone."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loadtest.rawdata import RawRun

SHORTEST_SECONDS = 0.5
"""A shorter part of a run says little about rates, so it counts with the part before."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a run, and its rates per second.

    Attributes:
        began: the event that it began with.
        seconds: how long it lasted.
        legs: requests that were answered, whatever the outcome.
        shed: legs that were handed on.
        refused: requests that were refused for load.
    """

    began: str
    seconds: float
    finished: float
    legs: float
    shed: float
    refused: float


def parts(run: RawRun) -> list[Part]:
    """Return the parts of a run in order, from its first answer to its last event."""
    first = min((leg.ended for leg in run.legs), default=0.0)
    marks: list[tuple[float, str]] = [(first, "the users start")]
    for event in sorted(run.events, key=lambda event: event.t):
        if event.t - marks[-1][0] >= SHORTEST_SECONDS:
            marks.append((event.t, event.what))
        else:
            marks[-1] = (marks[-1][0], event.what)
    limits = [t for t, _ in marks]
    finished = _counts((call.ended for call in run.calls if call.outcome == "finished"), limits)
    of_legs = {
        kind: _counts((leg.ended for leg in run.legs if kind in ("", leg.outcome)), limits)
        for kind in ("", "shed", "refused")
    }
    return [
        Part(
            what,
            seconds,
            finished[index] / seconds,
            *(counts[index] / seconds for counts in of_legs.values()),
        )
        for index, (begin, what) in enumerate(marks[:-1])
        if (seconds := limits[index + 1] - begin) > 0
    ]


def whole(run: RawRun) -> float:
    """Return how many calls were finished per second, from the first answer to the last event."""
    found = parts(run)
    return sum(part.finished * part.seconds for part in found) / (sum(part.seconds for part in found) or 1.0)


def _counts(moments: Iterable[float], limits: Sequence[float]) -> Counter[int]:
    return Counter(bisect_right(limits, moment) - 1 for moment in moments)
