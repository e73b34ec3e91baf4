"""What a scenario is: who calls, what is done to the deployment meanwhile, and what must hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from loadtest.cluster import Cluster
from loadtest.verdict import Bound

END = "the users leave"
"""The event that ends every run: calls under way are finished, and no new ones begun."""

NO_CALL_FAILED = Bound("Calls that failed", "calls_failed", at_most=0)
NO_CALL_REFUSED = Bound("Calls that were refused to the end", "calls_refused", at_most=0)
NO_ANSWER_WRONG = Bound("Answers with wrong content", "answers_wrong", at_most=0)
CALLS_FINISHED = Bound("Calls finished", "calls_finished", at_least=10)
ASKED_ONCE = Bound("Questions that a user was asked again in the same call", "asked_again", at_most=0)
FEW_SHEDS = Bound("Times that one call was handed on", "most_sheds", at_most=2)
RESUMED = Bound("Requests for the segments after the last one", "resumes", at_least=1)
NO_STATE_REJECTED = Bound("States that did not open", "states_rejected", at_most=0)

SOUND = (CALLS_FINISHED, NO_CALL_FAILED, NO_ANSWER_WRONG, ASKED_ONCE, FEW_SHEDS)
"""What holds whatever happens to the deployment."""


class UnderWay(Protocol):
    """A run under way, as scenarios are played with it.

    Attributes:
        seconds: how long the run is meant to take.
        now: tells how long ago the run began, in seconds.
        exit_codes: name → exit code of those who were asked to leave; for the scenario to note.
    """

    seconds: float
    now: Callable[[], float]
    exit_codes: dict[str, int]

    @property
    def cluster(self) -> Cluster:
        """The cluster that is called.

        Raises:
            ClusterError: the run has none of its own.
        """
        ...

    def mark(self, what: str, detail: str = "") -> None:
        """Note that something happens now, or that a part of the run begins."""
        ...

    def wait(self, seconds: float) -> None:
        """Let the users call for a while.

        Raises:
            ClusterError: they do not any more.
        """
        ...

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Let the users call until a condition holds.

        Raises:
            ClusterError: it takes too long, or the users do not call any more.
        """
        ...

    def users(self, times: float) -> None:
        """Let there be this many times as many users as at the begin."""
        ...


def wait(run: UnderWay) -> None:
    """Do nothing to the deployment."""
    run.wait(run.seconds)


@dataclass(frozen=True)
class Scenario:
    """A load test with a verdict.

    Attributes:
        name: what it is called on the command line.
        summary: what it shows, in a sentence.
        users: how many of each kind call at the same time.
        seconds: how long it takes.
        short_seconds: how long it takes where it only has to work, as in CI.
        short: what else differs there, by the names of these attributes: fewer users, cheaper settings.
        bounds: what must hold of what the users see.
        cluster_bounds: what must hold beside that if the run has a cluster of its own: it takes the metrics of its
            processes, or something that is done to it.
        play: what is done while the users call; it returns when the run is over.
        needs_cluster: whether `play` needs a cluster of its own. Against a target somebody else has to do it.
        replicas: how many there are at the begin.
        workers: likewise.
        redis: whether there is a Redis, as there always is for workers.
        environ: settings of all processes of the cluster.
        prepare: makes more of these settings, and what they name, given a directory.
        user_environ: settings of the users.
    """

    name: str
    summary: str
    users: Mapping[str, int]
    seconds: float = 60
    short_seconds: float = 8
    short: Mapping[str, Any] = field(default_factory=dict)
    bounds: tuple[Bound, ...] = SOUND
    cluster_bounds: tuple[Bound, ...] = ()
    play: Callable[[UnderWay], None] = wait
    needs_cluster: bool = False
    replicas: int = 2
    workers: int = 0
    redis: bool = False
    environ: Mapping[str, str] = field(default_factory=dict)
    prepare: Callable[[Path], Mapping[str, str]] = lambda _directory: {}
    user_environ: Mapping[str, str] = field(default_factory=dict)

    def shortened(self) -> Scenario:
        """Return it as it is run where it only has to work, as in CI."""
        return replace(self, seconds=self.short_seconds, **self.short)
