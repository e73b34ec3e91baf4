"""A long run of all kinds of calls: processes use no more memory and files at the end than at the start."""

from __future__ import annotations

from loadtest.scenario import SOUND, Scenario, UnderWay
from loadtest.verdict import Bound, Window

WARM = "warm"
HALF = "halfway"
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
    summary="After a long run of all kinds of calls and tasks, nothing has failed and nothing has grown.",
    users={"ephemeral": 8, "compute": 1, "streaming": 2, "task": 3, "hostile": 1},
    seconds=600,
    short_seconds=12,
    bounds=SOUND,
    cluster_bounds=(
        Bound(
            "Memory growth of the process that grew most", "memory_growth", at_most=1.1, window=_LATE, compared=_EARLY
        ),
        Bound(
            "Growth in open files of the process that grew most",
            "descriptor_growth",
            at_most=1.5,
            window=_LATE,
            compared=_EARLY,
        ),
    ),
    play=play,
    workers=1,
)
