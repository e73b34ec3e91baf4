"""Three times as much is asked of the replicas as they can do.

The users only compute, so that the replicas' time is what there is too little of. At first there are as many of them
as keep the replicas just busy; what is finished then is the peak. Then there are so many that most are refused. The
limit of each replica is a fixed one, so that none has to find its own first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadtest.scenario import CALLS_FINISHED, END, FEW_SHEDS, NO_ANSWER_WRONG, NO_CALL_FAILED, Scenario
from loadtest.verdict import Bound, Window

if TYPE_CHECKING:
    from loadtest.run import Run

BUSY = "as much as can be done"
TOO_MUCH = "far too much"
SETTLED = "the replicas have settled"

_TIMES = 30
_PEAK = Window(BUSY, TOO_MUCH)
_OVERLOAD = Window(SETTLED, END)


def play(run: Run) -> None:
    """Let the users be as many as can be served, then far too many."""
    run.wait(0.1 * run.seconds)
    run.mark(BUSY)
    run.wait(0.35 * run.seconds)
    run.mark(TOO_MUCH, f"{_TIMES} times as many users")
    run.users(_TIMES)
    run.wait(0.15 * run.seconds)
    run.mark(SETTLED)
    run.wait(0.4 * run.seconds)


SCENARIO = Scenario(
    name="load-shedding",
    summary="Under three times the load that can be served, what is taken on is served about as fast and as much.",
    users={"compute": 8},
    short_seconds=12,
    environ={"GATEWAY_MAX_INFLIGHT": "4"},
    user_environ={"LOADTEST_CRUNCH_UNITS": "20", "LOADTEST_CRUNCH_UNIT_MS": "2", "LOADTEST_PAUSE_SECONDS": "0"},
    bounds=(
        CALLS_FINISHED,
        NO_CALL_FAILED,
        NO_ANSWER_WRONG,
        FEW_SHEDS,
        Bound("Load offered, as a multiple of the peak", "offered_ratio", 3, window=_OVERLOAD, compared=_PEAK),
        Bound(
            "Calls finished a second, as a share of the peak", "goodput_ratio", 0.3, window=_OVERLOAD, compared=_PEAK
        ),
        Bound(
            "99th percentile of legs taken on, against that at the peak",
            "p99_ratio",
            at_most=5,
            window=_OVERLOAD,
            compared=_PEAK,
        ),
    ),
    cluster_bounds=(
        Bound(
            "Calls finished with a second of CPU time, as a share of those at the peak",
            "efficiency_ratio",
            at_least=0.4,
            window=_OVERLOAD,
            compared=_PEAK,
        ),
    ),
    play=play,
)
