"""A long time of everything: what a process takes in the end it took in the beginning."""

from __future__ import annotations

from loadtest.scenario import SOUND, Scenario, UnderWay
from loadtest.verdict import Bound, Window

WARM = "warm"
HALF = "half of the time"
LAST = "the last quarter"

_LATE, _EARLY = Window(LAST), Window(WARM, HALF)


def play(run: UnderWay) -> None:
    """Mark the quarters."""
    for what in (WARM, HALF, LAST):
        run.wait(0.25 * run.seconds)
        run.mark(what)
    run.wait(0.25 * run.seconds)


SCENARIO = Scenario(
    name="soak",
    summary="After a long time of calls and tasks of all kinds nothing has failed, and nothing has grown.",
    users={"ephemeral": 8, "compute": 1, "streaming": 2, "task": 3, "hostile": 1},
    seconds=600,
    short_seconds=12,
    bounds=SOUND,
    cluster_bounds=(
        Bound("Memory of the process that grew most", "memory_growth", at_most=1.1, window=_LATE, compared=_EARLY),
        Bound(
            "Open files of that where they grew most", "descriptor_growth", at_most=1.5, window=_LATE, compared=_EARLY
        ),
    ),
    play=play,
    workers=1,
)
