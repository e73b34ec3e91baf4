"""The definition of a scenario: its users, its changes to the deployment, and its bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from loadtest.cluster import Cluster
from loadtest.verdict import Bound

END = "the users stop"
"""The event that ends every run: users finish their calls and begin no new ones."""

NO_CALL_FAILED = Bound("Calls that failed", "calls_failed", at_most=0)
NO_CALL_REFUSED = Bound("Calls that were refused to the end", "calls_refused", at_most=0)
NO_ANSWER_WRONG = Bound("Answers with wrong content", "answers_wrong", at_most=0)
CALLS_FINISHED = Bound("Calls finished", "calls_finished", at_least=10)
ASKED_ONCE = Bound("Questions asked again in the same call", "asked_again", at_most=0)
FEW_SHEDS = Bound("Times that any one call was handed on", "most_sheds", at_most=2)
RESUMED = Bound("Requests that resumed after the last segment", "resumes", at_least=1)
NO_STATE_REJECTED = Bound("States that did not open", "states_rejected", at_most=0)

SOUND = (CALLS_FINISHED, NO_CALL_FAILED, NO_ANSWER_WRONG, ASKED_ONCE, FEW_SHEDS)
"""The bounds that hold whatever happens to the deployment."""


class UnderWay(Protocol):
    """A run in progress, as scenarios see it.

    Attributes:
        seconds: how long the run is meant to take.
        now: returns how long ago the run began, in seconds.
        exit_codes: name → exit code of the processes that were asked to stop; the scenario fills it in.
    """

    seconds: float
    now: Callable[[], float]
    exit_codes: dict[str, int]

    @property
    def cluster(self) -> Cluster:
        """The cluster that users call.

        Raises:
            ClusterError: the run did not start one.
        """
        ...

    def mark(self, what: str, detail: str = "") -> None:
        """Record an event, or the start of a part of the run."""
        ...

    def wait(self, seconds: float) -> None:
        """Let the users call for a while.

        Raises:
            ClusterError: they have stopped calling.
        """
        ...

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Let the users call until a condition holds.

        Raises:
            ClusterError: it takes too long, or the users have stopped calling.
        """
        ...

    def users(self, times: float) -> None:
        """Set the number of users to this multiple of the initial number."""
        ...


def wait(run: UnderWay) -> None:
    """Do nothing to the deployment."""
    run.wait(run.seconds)


@dataclass(frozen=True)
class Scenario:
    """A load test with a verdict.

    Attributes:
        name: its name on the command line.
        summary: one sentence that says what it shows.
        users: how many of each kind call at the same time.
        seconds: how long it takes.
        short_seconds: how long a short run takes, as in CI.
        short: other attributes that a short run changes: fewer users, cheaper settings.
        bounds: the bounds on what users see.
        cluster_bounds: further bounds for a run that starts its own cluster: they need the metrics of its processes,
            or a change made to it.
        play: acts on the deployment while the users call; it returns when the run is over.
        needs_cluster: whether `play` needs its own cluster. Against a target, the operator has to act instead.
        replicas: how many to start with.
        workers: likewise.
        redis: whether there is a Redis; workers always have one.
        environ: settings for all processes of the cluster.
        prepare: returns more of these settings, given a directory for the files that they name.
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
        """Return its short version, as CI runs it."""
        return replace(self, seconds=self.short_seconds, **self.short)
