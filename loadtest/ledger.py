"""The ledger of a run: every call that began, and how it ended. Computed from the raw data alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from loadtest.rawdata import RawRun, increase


@dataclass(frozen=True)
class Ledger:
    """The sums of a run.

    Attributes:
        calls: outcome → number of calls.
        legs: outcome → number of legs.
        calls_by_user: kind of user → outcome → number of calls.
        legs_by_replica: replica → number of legs it answered; the empty name has the unanswered legs.
        why: reason → number of unfinished calls.
        hops: legs that another replica answered than the previous leg.
        sheds: legs that were handed on.
        refusals: requests that were refused for load.
        retries: requests that were retried after a lost connection.
        questions: questions that were asked.
        segments: segments of results that were read.
        breaks: connections that their readers broke on purpose.
        resumes: requests that resumed after the last segment.
        states: states sealed, opened and rejected, as the processes count them. Empty without their metrics.
    """

    calls: Mapping[str, int] = field(default_factory=dict)
    legs: Mapping[str, int] = field(default_factory=dict)
    calls_by_user: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    legs_by_replica: Mapping[str, int] = field(default_factory=dict)
    why: Mapping[str, int] = field(default_factory=dict)
    hops: int = 0
    sheds: int = 0
    refusals: int = 0
    retries: int = 0
    questions: int = 0
    segments: int = 0
    breaks: int = 0
    resumes: int = 0
    states: Mapping[str, int] = field(default_factory=dict)

    @property
    def started(self) -> int:
        """How many calls were begun."""
        return sum(self.calls.values())

    @property
    def finished(self) -> int:
        """How many calls were finished."""
        return self.calls.get("finished", 0)

    @property
    def failed(self) -> int:
        """How many calls failed."""
        return self.calls.get("failed", 0)

    def rows(self) -> list[tuple[str, int]]:
        """Return its lines as text and number."""
        others = [(f"calls {outcome}", count) for outcome, count in sorted(self.calls.items()) if outcome != "finished"]
        return [
            ("calls started", self.started),
            ("calls finished", self.finished),
            *others,
            ("questions asked", self.questions),
            ("legs", sum(self.legs.values())),
            ("hops to another replica", self.hops),
            ("legs handed on", self.sheds),
            ("requests refused for load", self.refusals),
            ("requests retried after a lost connection", self.retries),
            ("segments read", self.segments),
            ("segment streams broken on purpose", self.breaks),
            ("requests that resumed after the last segment", self.resumes),
            *((f"states {what}", count) for what, count in self.states.items()),
        ]


def ledger(run: RawRun) -> Ledger:
    """Sum up a run."""
    calls_by_user: dict[str, Counter[str]] = {}
    for call in run.calls:
        calls_by_user.setdefault(call.user, Counter())[call.outcome] += 1
    return Ledger(
        calls=Counter(call.outcome for call in run.calls),
        legs=Counter(leg.outcome for leg in run.legs),
        calls_by_user=calls_by_user,
        legs_by_replica=Counter(leg.replica for leg in run.legs),
        why=Counter(call.reason for call in run.calls if call.outcome != "finished"),
        hops=sum(call.hops for call in run.calls),
        sheds=sum(call.sheds for call in run.calls),
        refusals=sum(call.refusals for call in run.calls),
        retries=sum(call.retries for call in run.calls),
        questions=sum(sum(call.asked.values()) for call in run.calls),
        segments=sum(call.segments for call in run.calls),
        breaks=sum(call.breaks for call in run.calls),
        resumes=sum(call.resumes for call in run.calls),
        states=_states(run),
    )


def _states(run: RawRun) -> dict[str, int]:
    processes = run.process_samples().values()
    metrics = {
        "sealed": "gateway_states_sealed_total",
        "opened": "gateway_states_opened_total",
        "rejected": "gateway_state_rejections_total",
    }
    return {
        what: round(sum(sum(increase(samples, metric).values()) for samples in processes))
        for what, metric in metrics.items()
        if processes
    }
