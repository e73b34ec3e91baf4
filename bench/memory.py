"""Whether the memory of a replica and a worker stays flat over very many legs and tasks. Runs by hand, for long.

python -m bench.memory [--legs 1000000] [--tasks 100000]; exit code 1 if memory goes on growing.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bench import cases, servers
from bench.cases import Target
from bench.load import measure
from bench.report import Goal, goals_table, table
from bench.servers import Cores, Program
from bench.task_load import Batch, TaskServer

PARTS: Final = 10
"""Memory is looked at after each of so many parts."""
MOST_GROWTH: Final = 0.01
"""By this share it may grow in the second half; the rest is what an allocator's pages differ by."""
CONNECTIONS: Final = 32
SLICE_SECONDS: Final = 5.0
QUOTA: Final = "10000000"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; the module's docstring tells the exit codes."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__)
    parser.add_argument("--legs", type=int, default=1_000_000, help="legs of calls with a question (%(default)s)")
    parser.add_argument("--tasks", type=int, default=100_000, help="tasks to completion (%(default)s)")
    given = parser.parse_args(arguments)
    cores = Cores.choose()
    seen = {**_of_legs(cores, given.legs), **_of_tasks(cores, given.tasks)}
    print("\n".join(table(("MiB after each tenth", *map(str, range(1, PARTS + 1))), map(_row, seen.items()))) + "\n")
    goals = [goal(name, mib) for name, mib in seen.items()]
    print("\n".join(goals_table(goals)))
    return 0 if all(goal.passed for goal in goals) else 1


def _of_legs(cores: Cores, legs: int) -> dict[str, list[float]]:
    with servers.ours(cores) as server:
        plans = cases.retry_leg_plans(Target(server.port, server.tokens(CONNECTIONS)))
        first = cases.first_leg_plans(Target(server.port, server.tokens(CONNECTIONS)))

        def send() -> None:
            done, turn = 0, 0
            while done < legs // PARTS:
                asked = (first, plans)[turn % 2]
                measured = measure(
                    server.port, asked, warmup_seconds=0, seconds=SLICE_SECONDS, server_cpu=server.cpu_seconds
                )
                done, turn = done + len(measured.latencies_ns), turn + 1
                if measured.wrong:
                    raise SystemExit(f"WRONG: {measured.wrong[0]}")

        return _watch({f"a replica, {legs:,} legs": server}, send)


def _of_tasks(cores: Cores, tasks: int) -> dict[str, list[float]]:
    with servers.redis_server(cores.load) as redis:
        environment = servers.production(
            GATEWAY_REDIS_URL=redis.url, GATEWAY_TASKS_PER_PRINCIPAL=QUOTA, **servers.NEVER_OVERLOADED
        )
        with servers.ours(cores, environment) as http, servers.worker(cores, environment) as worker:
            server = TaskServer("ours", http, redis, http.tokens(CONNECTIONS), worker)

            def run() -> None:
                batch = Batch(server)
                batch.create(tasks // PARTS)
                batch.finish()

            return _watch({f"a replica, {tasks:,} tasks": http, f"a worker, {tasks:,} tasks": worker}, run)


def _watch(programs: Mapping[str, Program], work: Callable[[], object]) -> dict[str, list[float]]:
    """The memory of each program in MiB after each part of the work."""
    seen: dict[str, list[float]] = {name: [] for name in programs}
    for part in range(PARTS):
        work()
        for name, program in programs.items():
            seen[name].append(program.resident_mib())
            print(f"{name}: {part + 1} of {PARTS}, {seen[name][-1]:.1f} MiB", file=sys.stderr, flush=True)
    return seen


def goal(name: str, mib: Sequence[float]) -> Goal:
    """Judge by the slope of a line through the second half, as a share of its mean."""
    half = mib[len(mib) // 2 :]
    slope = statistics.linear_regression(range(len(half)), half).slope
    growth = slope * (len(half) - 1) / statistics.fmean(half)
    what = f"{name}: memory of the second half grows by at most {MOST_GROWTH:.0%}"
    return Goal(what, f"{growth:+.1%}", growth <= MOST_GROWTH)


def _row(item: tuple[str, Sequence[float]]) -> list[str]:
    name, mib = item
    return [name, *(f"{value:.1f}" for value in mib)]


if __name__ == "__main__":
    sys.exit(main())
