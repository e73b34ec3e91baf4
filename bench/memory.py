"""Check that the memory of a replica and a worker stays flat over many legs and tasks. Run by hand; it takes long.

python -m bench.memory [--legs 1000000] [--tasks 100000]; exit code 1 if memory keeps growing. It writes
`reports/memory.md` and `reports/memory.json`, which the report of `make bench` includes if they exist.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from bench import cases, goals, ours, servers
from bench.cases import Target
from bench.goals import Goal, Verdict, goals_table
from bench.load import measure
from bench.options import Options
from bench.report import machine
from bench.servers import Cores, Program
from bench.tables import table
from bench.task_load import Batch, TaskServer

PARTS: Final = 10
"""The number of parts of the work; memory is measured after each."""
RESULT: Final = "memory.json"
ENOUGH_LEGS: Final = 1_000_000
CONNECTIONS: Final = 32
SLICE_SECONDS: Final = 5.0
QUOTA: Final = "10000000"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and return the exit code of the module's docstring, or 2 if the measurement cannot run."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__)
    parser.add_argument(
        "--legs", type=int, default=1_000_000, help="number of legs of calls with a question (default: %(default)s)"
    )
    parser.add_argument("--tasks", type=int, default=100_000, help="number of tasks to complete (default: %(default)s)")
    parser.add_argument("--interpreted", action="store_true", help="measure the source tree, not compiled code")
    parser.add_argument("--reports", type=Path, default=Options().reports, help="folder to write reports to")
    given = parser.parse_args(arguments)
    problem = ours.problem(servers.TOP, interpreted=given.interpreted)
    if problem is not None:
        print(f"bench.memory: {problem}", file=sys.stderr)
        return 2
    cores = Cores.choose()
    seen = {**_of_legs(cores, given.legs), **_of_tasks(cores, given.tasks)}
    verdicts = [judge(name, mib) for name, mib in seen.items()]
    lines = [
        *("# Memory", "", f"The gateway {ours.kind()}, on {machine()}.", ""),
        *table(("MiB after each tenth", *map(str, range(1, PARTS + 1))), map(_row, seen.items())),
        *("", *goals_table(verdicts)),
    ]
    print("\n".join(lines))
    given.reports.mkdir(parents=True, exist_ok=True)
    (given.reports / "memory.md").write_text("\n".join(lines) + "\n")
    document = {"code": ours.kind(), "legs": given.legs, "tasks": given.tasks, "mib": seen}
    (given.reports / RESULT).write_text(json.dumps(document, indent=2) + "\n")
    return 0 if all(verdict.met for verdict in verdicts) else 1


def earlier(reports: Path) -> list[Verdict]:
    """Return the verdict of the last run on its budget, if it measured the same code for long enough."""
    try:
        result = json.loads((reports / RESULT).read_text())
    except FileNotFoundError:
        return []
    if result["code"] != ours.kind() or result["legs"] < ENOUGH_LEGS:
        return []
    growth = growth_of(result["mib"][_legs_name(result["legs"])])
    return [goals.LEGS_FLAT.judge(growth, f"{growth:+.1f} %, by `python -m bench.memory`")]


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

        return _watch({_legs_name(legs): server}, send)


def _legs_name(legs: int) -> str:
    return f"a replica, {legs:,} legs"


def _of_tasks(cores: Cores, tasks: int) -> dict[str, list[float]]:
    with servers.redis_server(cores.load) as redis:
        environment = servers.production(
            GATEWAY_REDIS_URL=redis.url,
            GATEWAY_TASKS_PER_PRINCIPAL=QUOTA,
            GATEWAY_TASK_BYTES_PER_PRINCIPAL=str(2**40),
            **servers.NEVER_OVERLOADED,
        )
        with servers.ours(cores, environment) as http, servers.worker(cores, environment) as worker:
            server = TaskServer("ours", http, redis, http.tokens(CONNECTIONS), worker)

            def run() -> None:
                batch = Batch(server)
                batch.create(tasks // PARTS)
                batch.finish()

            return _watch({f"a replica, {tasks:,} tasks": http, f"a worker, {tasks:,} tasks": worker}, run)


def _watch(programs: Mapping[str, Program], work: Callable[[], object]) -> dict[str, list[float]]:
    """Return the memory of each program in MiB after each part of the work."""
    seen: dict[str, list[float]] = {name: [] for name in programs}
    for part in range(PARTS):
        work()
        for name, program in programs.items():
            seen[name].append(program.resident_mib())
            print(f"{name}: {part + 1} of {PARTS}, {seen[name][-1]:.1f} MiB", file=sys.stderr, flush=True)
    return seen


def judge(name: str, mib: Sequence[float]) -> Verdict:
    """Judge the growth in the second half of the measurements."""
    growth = growth_of(mib)
    goal = Goal(f"memory of {name}: growth in the second half", goals.LEGS_FLAT.bound, goals.LEGS_FLAT.unit)
    return goal.judge(growth, f"{growth:+.1f} %")


def growth_of(mib: Sequence[float]) -> float:
    """Return the growth of the second half in percent: the slope of a line through it, as a share of its mean."""
    half = mib[len(mib) // 2 :]
    slope = statistics.linear_regression(range(len(half)), half).slope
    return 100 * slope * (len(half) - 1) / statistics.fmean(half)


def _row(item: tuple[str, Sequence[float]]) -> list[str]:
    name, mib = item
    return [name, *(f"{value:.1f}" for value in mib)]


if __name__ == "__main__":
    sys.exit(main())
