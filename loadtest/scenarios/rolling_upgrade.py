"""Every replica and worker is replaced by the next release, one after the other, in the middle of calls."""

from __future__ import annotations

from loadtest.scenario import RESUMED, SOUND, Scenario, UnderWay
from loadtest.verdict import Bound, Window

BEGAN = "upgrade began"
DONE = "upgrade done"

_SAID = {"leaving": "{} drains", "left": "{} has stopped", "ready": "{} is upgraded"}


def play(run: UnderWay) -> None:
    """Roll the next release of the demo tools out."""
    run.wait(0.2 * run.seconds)
    run.mark(BEGAN)
    run.exit_codes.update(
        run.cluster.rolling_restart(
            {"GATEWAY_DEMO_RELEASE": "2"},
            on_event=lambda event, name: run.mark(_SAID[event].format(name)),
        )
    )
    run.mark(DONE)
    run.wait(max(0.2 * run.seconds, run.seconds - run.now()))


def _still_served(replica: str) -> Bound:
    """Bound the requests that a draining replica serves between the stop signal and its end: it abandons no client."""
    window = Window(_SAID["leaving"].format(replica), _SAID["left"].format(replica))
    return Bound(f"Requests that {replica} served while draining", "legs_served", 3, replica=replica, window=window)


SCENARIO = Scenario(
    name="rolling-upgrade",
    summary="Every replica and worker is replaced, and no user notices: no call fails, no question is asked twice.",
    users={"ephemeral": 240, "compute": 3, "streaming": 6, "task": 6},
    short={"users": {"ephemeral": 48, "compute": 2, "streaming": 4, "task": 2}},
    user_environ={
        "LOADTEST_THINK_SECONDS": "0.25",
        "LOADTEST_PAUSE_SECONDS": "0.25",
        "LOADTEST_CRUNCH_UNIT_MS": "1",
    },
    bounds=(*SOUND, Bound("Requests whose connection was lost", "connections_lost", at_most=0)),
    cluster_bounds=(
        _still_served("r1"),
        _still_served("r2"),
        Bound("Processes that did not exit cleanly", "bad_exits", at_most=0),
        Bound("Calls finished during the upgrade", "calls_finished", at_least=1, window=Window(BEGAN, DONE)),
        Bound("States that did not open", "states_rejected", at_most=0),
        RESUMED,
    ),
    play=play,
    needs_cluster=True,
    workers=1,
)
