"""Judges whether a run stayed within its bounds. Computed from the raw data alone, so it can be computed again.

A bound limits a measure. Measures are counts, or ratios of two parts of the same run, so neither the speed of the
machine nor its other work matters.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from loadtest.rawdata import Call, Leg, RawRun, increase, percentile
from loadtest.wire import STORE_AWAY, STORE_SILENT

P99 = 0.99

_STORE_DOWN = {STORE_SILENT, STORE_AWAY}
"""The reasons of requests that are refused because the task store is down."""

_SERVED = ("completed", "input_required", "shed", "task_created")
"""The outcomes of a leg that a replica accepted and worked on."""


@dataclass(frozen=True)
class Window:
    """A part of a run, between two of its events.

    Attributes:
        after: the event that it begins with; empty for the start of the run.
        before: the event that it ends with; empty for the end.
    """

    after: str = ""
    before: str = ""

    def of(self, run: RawRun) -> tuple[float, float]:
        """Return its start and its end in a run; NaN if one of the events is missing."""
        begin = run.moment(self.after) if self.after else 0.0
        end = run.moment(self.before) if self.before else max(run.seconds, begin)
        return (begin, end) if begin < end < math.inf else (math.nan, math.nan)


@dataclass(frozen=True)
class Bound:
    """A limit on a measure.

    Attributes:
        what: the measure in words, for the report.
        measure: its name in `MEASURES`.
        at_least: the lowest allowed value, if any.
        at_most: the highest allowed value, if any.
        users: the kinds of users whose calls and legs count; all if empty.
        replica: the replica whose legs count; all if empty.
        window: the part of the run that counts.
        compared: the part of the run to compare with, for ratios.
    """

    what: str
    measure: str
    at_least: float | None = None
    at_most: float | None = None
    users: tuple[str, ...] = ()
    replica: str = ""
    window: Window = field(default_factory=Window)
    compared: Window = field(default_factory=Window)

    def allows(self, measured: float) -> bool:
        """Return whether a value is within the limit. NaN, for no measurement, is not."""
        return (
            not math.isnan(measured)
            and (self.at_least is None or measured >= self.at_least)
            and (self.at_most is None or measured <= self.at_most)
        )

    def text(self) -> str:
        """Return the limit in words."""
        least = [] if self.at_least is None else [f"at least {self.at_least:g}"]
        most = [] if self.at_most is None else [f"at most {self.at_most:g}"]
        return " and ".join(least + most)

    def as_json(self) -> dict[str, Any]:
        """Return it as `run.json` has it."""
        windows = {"window": self.window, "compared": self.compared}
        return {
            "what": self.what,
            "measure": self.measure,
            "at_least": self.at_least,
            "at_most": self.at_most,
            "users": list(self.users),
            "replica": self.replica,
            **{name: {"after": window.after, "before": window.before} for name, window in windows.items()},
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Bound:
        """Read what `as_json` returned."""
        return cls(
            **{
                **given,
                "users": tuple(given["users"]),
                "window": Window(**given["window"]),
                "compared": Window(**given["compared"]),
            }
        )


@dataclass(frozen=True)
class Reason:
    """One bound and its result."""

    what: str
    bound: str
    measured: str
    passed: bool

    def as_json(self) -> dict[str, Any]:
        """Return it as `run.json` has it."""
        return {"what": self.what, "bound": self.bound, "measured": self.measured, "passed": self.passed}


@dataclass(frozen=True)
class Verdict:
    """Whether a run stayed within all its bounds.

    Attributes:
        reasons: one for each bound.
    """

    reasons: tuple[Reason, ...]

    @property
    def passed(self) -> bool:
        """Whether all bounds hold. Without any bound the run shows nothing, so it fails."""
        return bool(self.reasons) and all(reason.passed for reason in self.reasons)

    def as_json(self) -> dict[str, Any]:
        """Return it as `run.json` has it."""
        return {"passed": self.passed, "reasons": [reason.as_json() for reason in self.reasons]}


def judge(run: RawRun, bounds: Sequence[Bound] | None = None) -> Verdict:
    """Judge a run by bounds, by default by those that it was started with."""
    if bounds is None:
        bounds = [Bound.from_json(given) for given in run.about.get("bounds", ())]
    return Verdict(tuple(_reason(run, bound) for bound in bounds))


def _reason(run: RawRun, bound: Bound) -> Reason:
    measured = MEASURES[bound.measure](run, bound)
    shown = "nothing to measure" if math.isnan(measured) else f"{round(measured, 3):g}"
    return Reason(bound.what, bound.text(), shown, bound.allows(measured))


Measure = Callable[[RawRun, Bound], float]


def _calls(run: RawRun, bound: Bound, window: Window | None = None) -> list[Call]:
    begin, end = (window or bound.window).of(run)
    return [call for call in run.calls if begin <= call.ended <= end and (not bound.users or call.user in bound.users)]


def _legs(run: RawRun, bound: Bound) -> list[Leg]:
    begin, end = bound.window.of(run)
    return [
        leg
        for leg in run.legs
        if begin <= leg.ended <= end
        and (not bound.users or leg.user in bound.users)
        and bound.replica in ("", leg.replica)
    ]


def _calls_with(outcome: str) -> Measure:
    return lambda run, bound: sum(call.outcome == outcome for call in _calls(run, bound))


def _legs_with(outcome: str) -> Measure:
    return lambda run, bound: sum(leg.outcome == outcome for leg in _legs(run, bound))


def _legs_without_store(run: RawRun, bound: Bound) -> float:
    return sum(leg.outcome == "refused" and leg.reason in _STORE_DOWN for leg in _legs(run, bound))


def _legs_served(run: RawRun, bound: Bound) -> float:
    return sum(leg.outcome in _SERVED for leg in _legs(run, bound))


def _most(of: Callable[[Call], int]) -> Measure:
    return lambda run, bound: max((of(call) for call in _calls(run, bound)), default=math.nan)


def _sum(of: Callable[[Call], int]) -> Measure:
    return lambda run, bound: sum(of(call) for call in _calls(run, bound))


def _asked_again(run: RawRun, bound: Bound) -> float:
    calls = _calls(run, bound)
    return sum(count - 1 for call in calls for count in call.asked.values()) if calls else math.nan


def _replicas_that_answered(run: RawRun, bound: Bound) -> float:
    return len({leg.replica for leg in _legs(run, bound) if leg.replica})


def _share_finished(run: RawRun, bound: Bound) -> float:
    calls = _calls(run, bound)
    return _ratio(sum(call.outcome == "finished" for call in calls), len(calls))


def _rate(run: RawRun, count: int, window: Window) -> float:
    begin, end = window.of(run)
    return _ratio(count, end - begin)


def _finished(run: RawRun, bound: Bound, window: Window) -> list[Call]:
    return [call for call in _calls(run, bound, window) if call.outcome == "finished"]


def _goodput_ratio(run: RawRun, bound: Bound) -> float:
    """Compare how many calls were finished per second."""
    rates = (_rate(run, len(_finished(run, bound, window)), window) for window in (bound.window, bound.compared))
    return _ratio(*rates)


def _efficiency_ratio(run: RawRun, bound: Bound) -> float:
    """Compare how many calls were finished per second of CPU time of the processes.

    Unlike calls per second, this does not depend on other work of the machine.
    """

    def efficiency(window: Window) -> float:
        begin, until = window.of(run)
        samples = [[one for one in of_one if begin <= one.t <= until] for of_one in run.process_samples().values()]
        times = [sample.t for of_one in samples for sample in of_one] or [math.nan]
        cpu_seconds = sum(increase(of_one, "process_cpu_seconds_total").get("", 0.0) for of_one in samples)
        ends = [call.ended for call in _finished(run, bound, window)]
        return _ratio(sum(min(times) <= end <= max(times) for end in ends), cpu_seconds)

    return _ratio(efficiency(bound.window), efficiency(bound.compared))


def _offered_ratio(run: RawRun, bound: Bound) -> float:
    """Compare the load offered per second, refused or finished, with the rate of finished calls."""
    refused = sum(leg.outcome == "refused" for leg in _legs(run, bound))
    asked_for = refused + len(_finished(run, bound, bound.window))
    finished = len(_finished(run, bound, bound.compared))
    return _ratio(_rate(run, asked_for, bound.window), _rate(run, finished, bound.compared))


def _p99_ratio(run: RawRun, bound: Bound) -> float:
    """Compare how long accepted legs took.

    Legs of the window only have to begin in it, as a leg that outlasts the window is the worst of all. Legs of the
    other window have to end in it too, as later events may have held them up.
    """
    (begin, end), (begin_compared, end_compared) = bound.window.of(run), bound.compared.of(run)
    legs = [leg for leg in _legs(run, replace(bound, window=Window())) if leg.outcome in _SERVED]
    tail = percentile([leg.seconds for leg in legs if begin <= leg.t <= end], P99)
    compared = [leg.seconds for leg in legs if begin_compared <= leg.t and leg.ended <= end_compared]
    return _ratio(tail, percentile(compared, P99))


def _risen(metric: str) -> Measure:
    """Measure the increase of a counter over all processes that have it; NaN without processes."""

    def measure(run: RawRun, _bound: Bound) -> float:
        processes = run.process_samples().values()
        return sum(sum(increase(samples, metric).values()) for samples in processes) if processes else math.nan

    return measure


def _keys_that_sealed(run: RawRun, _bound: Bound) -> float:
    risen: dict[str, float] = {}
    for samples in run.process_samples().values():
        for key_id, count in increase(samples, "gateway_states_sealed_total", by="key_id").items():
            risen[key_id] = risen.get(key_id, 0.0) + count
    return sum(count > 0 for count in risen.values())


def _bad_exits(run: RawRun, _bound: Bound) -> float:
    codes = run.about.get("exit_codes", {})
    return sum(code != 0 for code in codes.values()) if codes else math.nan


def _growth(metric: str) -> Measure:
    """Compare the median of a gauge in the two windows, for the process where it grew most."""

    def median(run: RawRun, process: str, window: Window) -> float:
        begin, end = window.of(run)
        values = [
            sample.values[metric]
            for sample in run.samples
            if sample.process == process and begin <= sample.t <= end and metric in sample.values
        ]
        return statistics.median(values) if values else math.nan

    def measure(run: RawRun, bound: Bound) -> float:
        grown = (
            _ratio(median(run, process, bound.window), median(run, process, bound.compared))
            for process in run.process_samples()
        )
        return max((ratio for ratio in grown if not math.isnan(ratio)), default=math.nan)

    return measure


def _ratio(of: float, to: float) -> float:
    return of / to if to > 0 else math.nan


MEASURES: Mapping[str, Measure] = {
    "calls_finished": _calls_with("finished"),
    "calls_failed": _calls_with("failed"),
    "calls_refused": _calls_with("refused"),
    "calls_unfinished": _calls_with("unfinished"),
    "share_finished": _share_finished,
    "answers_wrong": _legs_with("wrong"),
    "legs_shed": _legs_with("shed"),
    "legs_refused": _legs_with("refused"),
    "legs_served": _legs_served,
    "legs_without_store": _legs_without_store,
    "asked_again": _asked_again,
    "most_sheds": _most(lambda call: call.sheds),
    "hops": _sum(lambda call: call.hops),
    "connections_lost": _sum(lambda call: call.retries),
    "resumes": _sum(lambda call: call.resumes),
    "replicas_that_answered": _replicas_that_answered,
    "goodput_ratio": _goodput_ratio,
    "efficiency_ratio": _efficiency_ratio,
    "offered_ratio": _offered_ratio,
    "p99_ratio": _p99_ratio,
    "states_rejected": _risen("gateway_state_rejections_total"),
    "tasks_redelivered": _risen("gateway_tasks_redelivered_total"),
    "keys_that_sealed": _keys_that_sealed,
    "bad_exits": _bad_exits,
    "memory_growth": _growth("process_resident_memory_bytes"),
    "descriptor_growth": _growth("process_open_fds"),
}
"""Name → measure of a run."""
