"""The raw data of a run, read back: what everybody who looks at a run begins with.

A run leaves a directory: `run.json` says what was run, `legs.jsonl` and `calls.jsonl` what the users saw,
`events.jsonl` what was done to the deployment meanwhile, `metrics.jsonl` what its processes said of themselves once a
second. All times are seconds since the run began.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

RUN = "run.json"
LEGS = "legs.jsonl"
CALLS = "calls.jsonl"
EVENTS = "events.jsonl"
METRICS = "metrics.jsonl"

_SERIES = re.compile(r"(?P<name>\w+)(?:\{(?P<labels>.*)\})?")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class RawDataError(Exception):
    """A directory does not hold the raw data of a run. The message says what is missing or wrong, and where."""


@dataclass(frozen=True, slots=True)
class Leg:
    """One leg, as its user saw it: one HTTP request and its answer.

    Attributes:
        t: when it began.
        seconds: how long it took.
        user: the kind of user.
        call: which call it belongs to.
        leg: its place in the call, from 1.
        method: the JSON-RPC method.
        tool: what was called.
        replica: who answered; empty if nobody did.
        status: the HTTP status, 0 if there was none.
        outcome: completed, input_required, shed, task_created, refused, failed or wrong.
        reason: why it was refused, failed or is wrong.
        state_bytes: the size of the state that came back.
    """

    t: float
    seconds: float
    user: str
    call: str
    leg: int
    method: str
    tool: str
    replica: str
    status: int
    outcome: str
    reason: str = ""
    state_bytes: int = 0

    @property
    def ended(self) -> float:
        """When it ended."""
        return self.t + self.seconds


@dataclass(frozen=True, slots=True)
class Call:
    """One call, as its user saw it.

    Attributes:
        t: when it began.
        seconds: how long it took, the user's thinking included.
        user: the kind of user.
        call: its id.
        tool: what was called.
        legs: how many it took.
        hops: how many of them another replica answered than the one before.
        sheds: how many were handed on.
        refusals: how many were refused for load.
        retries: how many were sent again because the connection was lost.
        asked: how often each question was asked, by its key.
        outcome: finished, failed, refused or unfinished.
        reason: why it was not finished.
        segments: how many came, of a result in segments.
        breaks: how often its user broke the connection on purpose.
        resumes: how many requests asked for the segments after the last one.
        first_segment: the seconds until the first segment was there; None without one.
    """

    t: float
    seconds: float
    user: str
    call: str
    tool: str
    legs: int
    hops: int
    sheds: int
    refusals: int
    retries: int
    asked: Mapping[str, int]
    outcome: str
    reason: str = ""
    segments: int = 0
    breaks: int = 0
    resumes: int = 0
    first_segment: float | None = None

    @property
    def ended(self) -> float:
        """When it ended."""
        return self.t + self.seconds


@dataclass(frozen=True, slots=True)
class Event:
    """Something that was done to the deployment, or a part of the run that begins.

    Attributes:
        t: when.
        what: a few words, for a mark in a chart.
        detail: more of it.
    """

    t: float
    what: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one process said of itself at one moment.

    Attributes:
        t: when.
        process: which.
        values: `metric{labels}` → number.
    """

    t: float
    process: str
    values: Mapping[str, float]


@dataclass(frozen=True)
class RawRun:
    """A run.

    Attributes:
        about: what `run.json` says.
        legs: in the order of their end.
        calls: in the order of their end.
        events: in order.
        samples: in order.
    """

    about: Mapping[str, Any] = field(default_factory=dict)
    legs: Sequence[Leg] = ()
    calls: Sequence[Call] = ()
    events: Sequence[Event] = ()
    samples: Sequence[Sample] = ()

    @property
    def seconds(self) -> float:
        """How long the run lasted."""
        return float(self.about.get("seconds", 0)) or max((call.ended for call in self.calls), default=0.0)

    def moment(self, what: str) -> float:
        """Return when an event happened first; never, if it did not."""
        return next((event.t for event in self.events if event.what == what), math.inf)

    def process_samples(self) -> dict[str, list[Sample]]:
        """Return the samples of each process, in order."""
        by_process: dict[str, list[Sample]] = {}
        for sample in self.samples:
            by_process.setdefault(sample.process, []).append(sample)
        return by_process


def read(directory: Path) -> RawRun:
    """Read the raw data of a run. What a run that was cut short has not written is missing, and no error.

    Raises:
        RawDataError: there is no run, or a line is not one of a run.
    """
    about = directory / RUN
    try:
        return RawRun(
            json.loads(about.read_text(encoding="utf-8")),
            [Leg(**_shared(line)) for line in _lines(directory / LEGS)],
            [Call(**_shared(line)) for line in _lines(directory / CALLS)],
            [Event(**line) for line in _lines(directory / EVENTS)],
            [Sample(**line) for line in _lines(directory / METRICS)],
        )
    except FileNotFoundError:
        raise RawDataError(f"{directory} is no run: {about.name} is missing") from None
    except (TypeError, ValueError) as error:
        raise RawDataError(f"{directory} holds something else than a run: {error}") from None


def increase(
    samples: Sequence[Sample], metric: str, labels: Mapping[str, str] | None = None, *, by: str = ""
) -> dict[str, float]:
    """Return by how much a counter of one process has risen, over its restarts.

    Args:
        samples: of the process, in order. What the first one says was there before.
        metric: the counter's name.
        labels: which of its series count; all without.
        by: a label to tell them apart by; without it, or where a series lacks it, it is the empty string.
    """
    risen: dict[str, float] = {}
    wanted = (labels or {}).items()
    for before, after in pairwise(samples):
        for series, value in after.values.items():
            name, found = parse_series(series)
            if name == metric and found.items() >= wanted:
                was = before.values.get(series, 0.0)
                group = found.get(by, "")
                risen[group] = risen.get(group, 0.0) + (value - was if value >= was else value)
    return risen


@lru_cache(maxsize=4096)
def parse_series(series: str) -> tuple[str, Mapping[str, str]]:
    """Split `metric{labels}` into the name and the labels."""
    found = _SERIES.fullmatch(series)
    return (found["name"], dict(_LABEL.findall(found["labels"] or ""))) if found else (series, {})


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of all does not exceed (nearest rank); not a number if there are none."""
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a file, if it is there. Its last one may be cut short, as the end of a run may be."""
    if not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)


def _shared(line: dict[str, Any]) -> dict[str, Any]:
    """Keep one copy of the few words that come in every line: runs may have a million of them."""
    return {name: sys.intern(value) if isinstance(value, str) else value for name, value in line.items()}
