"""Two replicas are killed in turn, in the middle of their work."""

from __future__ import annotations

from loadtest.scenario import NO_STATE_REJECTED, SOUND, Scenario, UnderWay
from loadtest.verdict import Bound, Window

KILLED = "r{} is killed"
BACK = "r{} is back"


def play(run: UnderWay) -> None:
    """Kill the replicas in turn; each is back before the next one is killed."""
    run.wait(0.2 * run.seconds)
    for number in (1, 2):
        replica = run.cluster.replicas[number - 1]
        run.mark(KILLED.format(number))
        replica.kill()
        run.wait(0.2 * run.seconds)
        replica.restart()
        run.wait_until(replica.is_ready, f"{replica.name} to serve again")
        run.mark(BACK.format(number))
        run.wait(0.2 * run.seconds)


SCENARIO = Scenario(
    name="replica-kill",
    summary="When a replica is killed, its open requests need one retry, and no call is lost.",
    users={"ephemeral": 8, "compute": 2, "streaming": 2},
    cluster_bounds=(
        NO_STATE_REJECTED,
        *(
            Bound(
                f"Calls finished while r{number} is down",
                "calls_finished",
                at_least=1,
                window=Window(KILLED.format(number), BACK.format(number)),
            )
            for number in (1, 2)
        ),
    ),
    play=play,
    needs_cluster=True,
    bounds=SOUND,
)
