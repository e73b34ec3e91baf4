"""The replicas get more work than they can do.

Most users only compute, so CPU time is the scarce resource; the others get a question in the middle of their calls.
At first there are just enough users to keep the replicas busy, and their rate of finished calls is the peak. Then
there are so many that a third of all requests are refused or handed on, and each user retries until the call is done.
The limit of each replica is fixed, so none has to find its own first.
"""

from __future__ import annotations

from loadtest.scenario import END, NO_CALL_REFUSED, SOUND, Scenario, UnderWay
from loadtest.verdict import Bound, Window

BUSY = "peak load"
TOO_MUCH = "overload"
SETTLED = "the replicas have settled"

_TIMES = 20
_PEAK = Window(BUSY, TOO_MUCH)
_OVERLOAD = Window(SETTLED, END)


def play(run: UnderWay) -> None:
    """Run as many users as the replicas can serve, then too many."""
    run.wait(0.1 * run.seconds)
    run.mark(BUSY)
    run.wait(0.35 * run.seconds)
    run.mark(TOO_MUCH, f"{_TIMES} times as many users")
    run.users(_TIMES)
    run.wait(0.2 * run.seconds)
    run.mark(SETTLED)
    run.wait(0.35 * run.seconds)


SCENARIO = Scenario(
    name="load-shedding",
    summary="Overloaded replicas finish about as many calls as before, and lose none.",
    users={"compute": 10, "ephemeral": 2},
    short_seconds=10,
    environ={"GATEWAY_MAX_INFLIGHT": "4", "GATEWAY_QUEUE_TARGET_MS": "5"},
    user_environ={
        "LOADTEST_CRUNCH_UNITS": "2",
        "LOADTEST_CRUNCH_UNIT_MS": "1",
        "LOADTEST_PAUSE_SECONDS": "0",
        "LOADTEST_THINK_SECONDS": "0.05",
        "LOADTEST_REFUSALS": "1000",
    },
    bounds=(
        *SOUND,
        NO_CALL_REFUSED,
        Bound("Load offered, as a multiple of the peak", "offered_ratio", 1.1, window=_OVERLOAD, compared=_PEAK),
        Bound("Requests refused for load", "legs_refused", 1, window=_OVERLOAD),
        Bound("Legs handed on", "legs_shed", 1, window=_OVERLOAD),
        Bound(
            "Calls finished per second, as a share of the peak", "goodput_ratio", 0.3, window=_OVERLOAD, compared=_PEAK
        ),
        Bound(
            "99th percentile of accepted legs, as a multiple of that at the peak",
            "p99_ratio",
            at_most=8,
            window=_OVERLOAD,
            compared=_PEAK,
        ),
    ),
    cluster_bounds=(
        Bound(
            "Calls finished per second of CPU time, as a share of the peak",
            "efficiency_ratio",
            at_least=0.4,
            window=_OVERLOAD,
            compared=_PEAK,
        ),
    ),
    play=play,
)
