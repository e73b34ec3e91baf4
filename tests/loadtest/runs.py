"""Small handmade runs, for tests of computations on raw data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loadtest.rawdata import Call, Event, Leg, RawRun, Sample


def leg(t: float = 0.0, outcome: str = "completed", **fields: Any) -> Leg:
    given = {"seconds": 0.1, "user": "ephemeral", "call": "c", "leg": 1, "method": "tools/call", "tool": "get_weather"}
    return Leg(t=t, outcome=outcome, **{**given, "replica": "r1", "status": 200, **fields})


def call(t: float = 0.0, outcome: str = "finished", **fields: Any) -> Call:
    counts = dict.fromkeys(("legs", "hops", "sheds", "refusals", "retries"), 0)
    given = {"seconds": 0.1, "user": "ephemeral", "call": "c", "tool": "get_weather", "asked": {}, **counts}
    return Call(t=t, outcome=outcome, **{**given, **fields})


def samples(process: str, *values: Mapping[str, float]) -> list[Sample]:
    """Return one sample per second, from 0."""
    return [Sample(float(t), process, value) for t, value in enumerate(values)]


def marked(*events: tuple[float, str], seconds: float = 10.0, **fields: Any) -> RawRun:
    """Return a run with these events."""
    about = {"seconds": seconds, **fields.pop("about", {})}
    return RawRun(about=about, events=[Event(t, what) for t, what in events], **fields)
