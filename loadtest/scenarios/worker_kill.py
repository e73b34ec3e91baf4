"""A worker is killed while it runs tasks; another one resumes them."""

from __future__ import annotations

from loadtest.scenario import SOUND, Scenario, UnderWay
from loadtest.verdict import Bound


def play(run: UnderWay) -> None:
    """Kill a worker in the middle of tasks, and start it again."""
    worker = run.cluster.workers[0]
    run.wait(0.2 * run.seconds)
    run.wait_until(lambda: worker.metric("gateway_tasks_running") > 1, f"{worker.name} to run tasks")
    worker.kill()
    run.mark(f"{worker.name} is killed")
    run.wait(0.4 * run.seconds)
    worker.restart()
    run.mark(f"{worker.name} is back")
    run.wait(0.4 * run.seconds)


SCENARIO = Scenario(
    name="worker-kill",
    summary="Another worker finishes the tasks of a killed one.",
    users={"task": 4, "streaming": 6, "ephemeral": 2},
    cluster_bounds=(Bound("Tasks that another worker took over", "tasks_redelivered", at_least=1),),
    play=play,
    needs_cluster=True,
    bounds=SOUND,
    workers=2,
    user_environ={"LOADTEST_REPORT_SECTIONS": "6"},
    environ={"GATEWAY_TASK_LEASE_SECONDS": "2"},
)
