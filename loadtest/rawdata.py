"""Reads the raw data of a run, the input of every analysis.

The directory of a run has `run.json`, which describes the run; `legs.jsonl` and `calls.jsonl`, which users record;
`events.jsonl`, the changes to the deployment; and `metrics.jsonl`, the metrics of its processes once a second. All
times are seconds since the run began.
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
    """A directory does not hold the raw data of a run. The message says which part is missing or wrong."""


@dataclass(frozen=True, slots=True)
class Leg:
    """One leg, as its user saw it: one HTTP request and its answer.

    Attributes:
        t: when it began.
        seconds: how long it took.
        user: the kind of user.
        call: the id of its call.
        leg: its place in the call, from 1.
        method: the JSON-RPC method.
        replica: the one that answered; empty if none did.
        status: the HTTP status, 0 if there was none.
        outcome: completed, input_required, shed, task_created, refused, failed or wrong.
        reason: why it was refused, failed or is wrong.
        state_bytes: the size of the returned state.
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
        seconds: how long it took, including the user's thinking.
        user: the kind of user.
        call: its id.
        legs: how many it took.
        hops: how many of them another replica answered than the previous leg.
        sheds: how many were handed on.
        refusals: how many were refused for load.
        retries: how many were retried after a lost connection.
        asked: question key → how often it was asked.
        outcome: finished, failed, refused or unfinished.
        reason: why it was not finished.
        segments: how many came, of a result in segments.
        breaks: how often its user broke the connection on purpose.
        resumes: how many requests resumed after the last segment.
        first_segment: the seconds until the first segment arrived; None without one.
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
    """A change to the deployment, or the start of a part of the run.

    Attributes:
        t: when.
        what: a few words, for a mark in a chart.
    """

    t: float
    what: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """The metrics of one process at one moment.

    Attributes:
        t: when.
        values: `metric{labels}` → number.
    """

    t: float
    process: str
    values: Mapping[str, float]


@dataclass(frozen=True)
class RawRun:
    """A run.

    Attributes:
        about: the content of `run.json`.
        legs: in the order of their end.
        calls: in the order of their end.
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
        """Return when an event first happened; infinity if it did not."""
        return next((event.t for event in self.events if event.what == what), math.inf)

    def process_samples(self) -> dict[str, list[Sample]]:
        """Return the samples of each process, in order."""
        by_process: dict[str, list[Sample]] = {}
        for sample in self.samples:
            by_process.setdefault(sample.process, []).append(sample)
        return by_process


def read(directory: Path) -> RawRun:
    """Read the raw data of a run. An interrupted run may lack some of it, which is not an error.

    Raises:
        RawDataError: there is no run, or a line is not valid.
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
        raise RawDataError(f"no run in {directory}: {about.name} is missing") from None
    except (TypeError, ValueError) as error:
        raise RawDataError(f"the data in {directory} is not that of a run: {error}") from None


def increase(
    samples: Sequence[Sample], metric: str, labels: Mapping[str, str] | None = None, *, by: str = ""
) -> dict[str, float]:
    """Return by how much a counter of one process has risen, over its restarts.

    Args:
        samples: those of the process, in order. The first one is the starting point.
        metric: the counter's name.
        labels: which of its series count; by default all.
        by: a label to group by; a series without it, or all series without `by`, go to the empty string.
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
    """Return the value that this share of all does not exceed (nearest rank); NaN if there are none."""
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a file, if it exists. The last line of an interrupted run may be incomplete."""
    if not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)


def _shared(line: dict[str, Any]) -> dict[str, Any]:
    """Share one copy of the few words that every line repeats; runs may have a million lines."""
    return {name: sys.intern(value) if isinstance(value, str) else value for name, value in line.items()}
