"""One replica, then two, then four: each serves as much as the first one.

The calls wait instead of computing, and each replica accepts a fixed number of them, so two cores are enough.
"""

from __future__ import annotations

from loadtest.scenario import NO_CALL_REFUSED, SOUND, Scenario, UnderWay
from loadtest.verdict import Bound, Window

SETTLE_SECONDS = 1.5
"""How long after one more replica serves, until the refused users have retried."""

_SIZES = (1, 2, 4)


def _begins(replicas: int) -> str:
    return "1 replica" if replicas == 1 else f"{replicas} replicas"


def _stopped(replicas: int) -> str:
    return f"more than {_begins(replicas)}"


def play(run: UnderWay) -> None:
    """Add replicas step by step, and let the users call for a while at each step."""
    for size in _SIZES:
        while len(run.cluster.replicas) < size:
            run.cluster.add_replica()
        run.wait(SETTLE_SECONDS)
        run.mark(_begins(size))
        run.wait(run.seconds / len(_SIZES))
        run.mark(_stopped(size))


def _share(replicas: int) -> Bound:
    return Bound(
        f"Calls finished per second by {_begins(replicas)}, as a multiple of those by one",
        "goodput_ratio",
        at_least=0.7 * replicas,
        window=Window(_begins(replicas), _stopped(replicas)),
        compared=Window(_begins(1), _stopped(1)),
    )


SCENARIO = Scenario(
    name="scale-out",
    summary="Twice the replicas serve twice the calls.",
    users={"streaming": 400},
    seconds=45,
    short_seconds=9,
    short={"users": {"streaming": 48}, "environ": {"GATEWAY_MAX_INFLIGHT": "6"}},
    bounds=(*SOUND, NO_CALL_REFUSED),
    cluster_bounds=tuple(_share(replicas) for replicas in _SIZES[1:]),
    play=play,
    needs_cluster=True,
    replicas=1,
    user_environ={
        "LOADTEST_REPORT_SECTIONS": "1",
        "LOADTEST_PAUSE_SECONDS": "0",
        "LOADTEST_REFUSALS": "1000",
    },
    environ={"GATEWAY_MAX_INFLIGHT": "48"},
)
