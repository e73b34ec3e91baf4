"""Sums up the raw data of a run into what its charts show. Pure: it reads no file and draws nothing."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from loadtest.rawdata import Event, Leg, RawRun, increase, percentile

MOST_BUCKETS = 240
BUCKET_SECONDS = (1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
FINE_SECONDS, FINE_BELOW_SECONDS = 0.5, 30.0
"""Runs shorter than `FINE_BELOW_SECONDS` are shown in buckets of `FINE_SECONDS`."""
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
ANSWERED = frozenset({"completed", "input_required", "shed", "task_created", "wrong"})
"""Outcomes of legs that ran, so their time reflects work. Refusals are quick and would flatter it."""
TROUBLES = frozenset({"shed", "refused", "failed", "wrong"})
"""Outcomes of legs that the charts count. A client does not notice a shed: another replica continues."""
OPEN_ENDED = frozenset({"subscriptions/listen"})
"""Methods that last for as long as the client listens."""
LOOK_SECONDS = 1.5
"""A process is looked at more often than this while it serves."""
WORKER_LEGS = "gateway_task_legs_total"
NOBODY = "no replica named"
REASONS = {
    "-31001": "overloaded",
    "-31003": "rate limit",
    "-31004": "task store timed out",
    "store unreachable": "task store unreachable",
    "-32602": "invalid state",
}

NINES_STEPS = 20
"""How many points of a curve lie between 90 % and 99 %, and again between 99 % and 99.9 %."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """How long legs took.

    Attributes:
        count: how many there were.
        percentiles: the latencies that the shares of `PERCENTILES` did not exceed, and the longest.
        nines: shares of the legs from one half up, as their number of nines: 1 for 90 %, 2 for 99 %.
        seconds: the latencies that these shares did not exceed.
    """

    count: int
    percentiles: Sequence[float]
    nines: Sequence[float]
    seconds: Sequence[float]


@dataclass(frozen=True, slots=True)
class Summary:
    """A run summed up, over time and in total.

    Attributes:
        edges: where the buckets of time begin, and where the last one ends, in seconds. All rates have one value for
            each bucket.
        events: the changes to the deployment, in order.
        finished: calls finished per second, by the replica that gave their last answer.
        worker_legs: legs of tasks that ran per second, by worker.
        lost: calls per second that were refused or failed, by outcome.
        troubles: legs per second that were shed, refused, failed or wrong, by reason.
        trouble_counts: the same in total.
        user: the kind of user with the most answered legs; empty if none was answered.
        latencies: how long these legs took: percentile → a value for each bucket, NaN where there was no leg. Only
            one kind of user counts, as others call tools that are slow by nature.
        tools: how long all answered legs took, by tool, or by method if no tool is called.
        first_segments: how long it took until the first segment of a result arrived, by tool.
    """

    edges: Sequence[float]
    events: Sequence[Event]
    finished: Mapping[str, Sequence[float]]
    worker_legs: Mapping[str, Sequence[float]]
    lost: Mapping[str, Sequence[float]]
    troubles: Mapping[str, Sequence[float]]
    trouble_counts: Mapping[str, int]
    user: str
    latencies: Mapping[str, Sequence[float]]
    tools: Mapping[str, Distribution]
    first_segments: Mapping[str, Distribution]

    @property
    def seconds(self) -> float:
        """How long the run took, to the end of its last call."""
        return self.edges[-1]


def summarize(run: RawRun) -> Summary:
    """Sum up a run."""
    limits = edges(max([run.seconds, *(call.ended for call in run.calls), *(leg.ended for leg in run.legs)]))
    troubles: dict[str, list[float]] = defaultdict(list)
    tools: dict[str, list[float]] = defaultdict(list)
    answered: dict[str, list[Leg]] = defaultdict(list)
    last_replica: dict[str, str] = {}
    for leg in run.legs:
        if leg.method not in OPEN_ENDED:
            last_replica[leg.call] = leg.replica
            if leg.outcome in ANSWERED:
                answered[leg.user].append(leg)
                tools[leg.tool or leg.method].append(leg.seconds)
        if leg.outcome in TROUBLES:
            troubles[trouble(leg.outcome, leg.reason)].append(leg.ended)
    finished: dict[str, list[float]] = defaultdict(list)
    lost: dict[str, list[float]] = defaultdict(list)
    first_segments: dict[str, list[float]] = defaultdict(list)
    for call in run.calls:
        if call.first_segment is not None:
            first_segments[call.tool].append(call.first_segment)
        if call.outcome == "finished":
            finished[last_replica.get(call.call) or NOBODY].append(call.ended)
        elif call.outcome != "unfinished":
            lost[call.outcome].append(call.ended)
    user = max(sorted(answered), key=lambda kind: len(answered[kind]), default="")
    return Summary(
        edges=limits,
        events=sorted(run.events, key=lambda event: event.t),
        finished={replica: rates(finished[replica], limits) for replica in sorted(finished, key=natural)},
        worker_legs={worker: rates(ends, limits) for worker, ends in sorted(_worker_legs(run).items())},
        lost={outcome: rates(ends, limits) for outcome, ends in lost.items()},
        troubles={what: rates(ends, limits) for what, ends in troubles.items()},
        trouble_counts={what: len(ends) for what, ends in troubles.items()},
        user=user,
        latencies=percentiles(answered[user], limits),
        tools={tool: distribution(seconds) for tool, seconds in tools.items()},
        first_segments={tool: distribution(seconds) for tool, seconds in first_segments.items()},
    )


def _worker_legs(run: RawRun) -> dict[str, list[float]]:
    """Return when each worker ran legs of tasks: its counter's increase, spread evenly between two samples."""
    found: dict[str, list[float]] = {}
    for process, samples in run.process_samples().items():
        for before, after in pairwise(samples):
            legs = round(sum(increase((before, after), WORKER_LEGS).values()))
            begin = max(before.t, after.t - LOOK_SECONDS)  # before that it did not run
            width = (after.t - begin) / max(1, legs)
            found.setdefault(process, []).extend(begin + (index + 0.5) * width for index in range(legs))
    return {process: ends for process, ends in found.items() if ends}


def trouble(outcome: str, reason: str) -> str:
    """Name what kept a leg from a plain answer: `refused: overloaded`."""
    return f"{outcome}: {REASONS.get(reason, reason)}" if reason else outcome


def edges(seconds: float) -> list[float]:
    """Return where the buckets of a run of this length begin, and where the last one ends: with the run.

    Their number is limited. All have the same length, except that the last may be longer or shorter by half.
    """
    width = _width(seconds)
    count = max(1, round(seconds / width))
    return [*(index * width for index in range(count)), max(seconds, width / 2)]


def _width(seconds: float) -> float:
    if seconds < FINE_BELOW_SECONDS:
        return FINE_SECONDS
    fitting = (width for width in BUCKET_SECONDS if seconds / width <= MOST_BUCKETS)
    return next(fitting, math.ceil(seconds / MOST_BUCKETS))


def rates(moments: Sequence[float], limits: Sequence[float]) -> list[float]:
    """Return how often something happened per second in each bucket."""
    counts = Counter(_bucket(moment, limits) for moment in moments)
    return [counts[index] / (end - begin) for index, (begin, end) in enumerate(pairwise(limits))]


def percentiles(legs: Sequence[Leg], limits: Sequence[float]) -> dict[str, list[float]]:
    """Return for each percentile and bucket how long the legs that ended in it took."""
    buckets: list[list[float]] = [[] for _ in limits[1:]]
    for leg in legs:
        buckets[_bucket(leg.ended, limits)].append(leg.seconds)
    return {name: [percentile(seconds, share) for seconds in buckets] for name, share in PERCENTILES.items()}


def distribution(seconds: Sequence[float]) -> Distribution:
    """Sum up one or more latencies."""
    ordered = sorted(seconds)
    nearest, furthest = nines(0.5), nines(1 - 1 / (len(ordered) + 1))
    places = [nearest + step / NINES_STEPS for step in range(math.ceil((furthest - nearest) * NINES_STEPS))]
    return Distribution(
        len(ordered),
        [*(percentile(ordered, share) for share in PERCENTILES.values()), ordered[-1]],
        [*places, furthest],
        [*(percentile(ordered, 1 - 10**-place) for place in places), ordered[-1]],
    )


def nines(share: float) -> float:
    """Return how many nines a share has: 1 for 0.9, 2 for 0.99."""
    return -math.log10(1 - share)


def _bucket(moment: float, limits: Sequence[float]) -> int:
    return min(max(0, int(moment / limits[1])), len(limits) - 2)


def natural(name: str) -> tuple[object, ...]:
    """Return a key that sorts names as people count: `gateway-2` before `gateway-10`."""
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part)
