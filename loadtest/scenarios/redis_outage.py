"""Redis is down for a while: calls do not notice, tasks wait."""

from __future__ import annotations

from loadtest.scenario import SOUND, Scenario, UnderWay
from loadtest.verdict import Bound, Window

AWAY = "Redis is killed"
BACK = "Redis is back"

_CALLS = ("ephemeral", "compute")


def play(run: UnderWay) -> None:
    """Kill Redis, and start it again."""
    redis = run.cluster.redis
    assert redis is not None
    run.wait(0.3 * run.seconds)
    run.mark(AWAY)
    redis.kill()
    run.wait(min(10.0, 0.3 * run.seconds))
    redis.restart()
    run.mark(BACK)
    run.wait(0.4 * run.seconds)


SCENARIO = Scenario(
    name="redis-outage",
    summary="Without Redis, calls continue as usual; tasks wait, and resume when it is back.",
    users={"ephemeral": 6, "compute": 1, "task": 3},
    bounds=SOUND,
    cluster_bounds=(
        Bound("Requests of calls refused for lack of Redis", "legs_without_store", at_most=0, users=_CALLS),
        Bound(
            "Calls finished during the outage",
            "calls_finished",
            at_least=1,
            users=_CALLS,
            window=Window(AWAY, BACK),
        ),
        Bound("Tasks finished after the outage", "calls_finished", at_least=1, users=("task",), window=Window(BACK)),
    ),
    play=play,
    needs_cluster=True,
    workers=1,
)
