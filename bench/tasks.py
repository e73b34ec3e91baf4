"""Tasks: create → completed compared with fastmcp, growth of costs with the number of stored tasks, and memory.

The replica and the worker of a server share one core; Redis and the clients share the other. Each server has its own
Redis, which writes nothing to disk. All of them have the same tool, which returns a text at once.
"""

from __future__ import annotations

import os
import platform
import signal
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from bench import goals, servers
from bench.goals import Verdict
from bench.options import Options
from bench.report import DISTURBED_SERVER, Section
from bench.servers import Cores
from bench.tables import table
from bench.task_load import POLL_SECONDS, Batch, TaskServer

OURS, FASTMCP = "ours", "fastmcp"
FEW, MANY = STORES = ("few", "many")
STEPS = {"create": "replica", "run": "worker", "get": "replica"}
"""Step of a task → the program of ours that does it."""
COSTS = {"ours_cpu_us": "our CPU", "redis_cpu_us": "CPU of Redis", "wall_us": "clock"}
POLLED = ("run", "wall_us")
"""This time depends on the clients' wait between two polls, so it is meaningless."""
CLIENTS = 32

WARMUP_TASKS = 200
FEW_TASKS = 100
BATCH_TASKS = 100
BATCHES = 5
"""The number of batches per round when stores of different sizes are compared, so the worker pauses only briefly."""
FILL_TASKS = 10_000
MEMORY_TASKS = 5_000
QUOTA = "10000000"
"""How many tasks a client may have stored; there are few clients."""


class Race(NamedTuple):
    """One server's batch in one round: rates by the clock, costs per task in microseconds of CPU time."""

    server: str
    round: int
    tasks: int
    tasks_per_second: float
    server_cpu_us: float
    redis_cpu_us: float
    server_busy: float
    polls_per_task: float


class Step(NamedTuple):
    """The cost of one step of a task in microseconds: our CPU time, that of Redis, and time by the clock."""

    store: str
    step: str
    round: int
    ours_cpu_us: float
    redis_cpu_us: float
    wall_us: float


def section(options: Options, cores: Cores) -> Section:
    """Measure tasks and sum them up.

    Raises:
        ServerError, LoadError, WrongAnswer: something cannot be measured.
    """
    os.sched_setaffinity(0, {cores.load})
    races = race(options, cores)
    steps = flatness(options, cores)
    return summary(options, races, steps, memory(cores))


def race(options: Options, cores: Cores) -> list[Race]:
    """Let fastmcp's server and ours complete tasks in turn, for about `options.seconds` in each round."""
    races: list[Race] = []
    with ExitStack() as stack:
        running = [stack.enter_context(start(cores)) for start in (_fastmcp, _ours)]
        rates = [_race(server, WARMUP_TASKS, 0).tasks_per_second for server in running]
        for round_number in range(options.rounds):
            _tell(f"round {round_number + 1} of {options.rounds}")
            for number, server in enumerate(running):
                races.append(_race(server, max(CLIENTS, int(rates[number] * options.seconds)), round_number))
                rates[number] = races[-1].tasks_per_second
    return races


def _race(server: TaskServer, count: int, round_number: int) -> Race:
    batch = Batch(server)

    def work() -> None:
        batch.create(count)
        batch.finish()

    lap = server.lap(work)
    redis = lap.cpu.pop("redis")
    own = sum(lap.cpu.values())
    return Race(
        server=server.name,
        round=round_number,
        tasks=count,
        tasks_per_second=count / lap.seconds,
        server_cpu_us=own * 1e6 / count,
        redis_cpu_us=redis * 1e6 / count,
        server_busy=own / lap.seconds,
        polls_per_task=batch.polls / count,
    )


def flatness(options: Options, cores: Cores) -> list[Step]:
    """Measure each step of a task on a store with few tasks and on one with many, in turn."""
    steps: list[Step] = []
    with _ours(cores) as small, _ours(cores) as large:
        _fill(large, options.stored_tasks)
        for round_number in range(options.rounds):
            _tell(f"few and many stored tasks, round {round_number + 1} of {options.rounds}")
            small.redis.ask("FLUSHALL", "SYNC")
            _fill(small, FEW_TASKS)
            for _ in range(BATCHES):
                for store, server in ((FEW, small), (MANY, large)):
                    steps += _steps(server, store, round_number)
    return steps


def _fill(server: TaskServer, count: int) -> None:
    """Create tasks over the wire and let the worker complete them."""
    for done in range(0, count, FILL_TASKS):
        if count > FILL_TASKS:
            _tell(f"{done:,} of {count:,} stored")
        batch = Batch(server)
        batch.create(min(FILL_TASKS, count - done))
        batch.finish()


def _steps(server: TaskServer, store: str, round_number: int) -> Iterator[Step]:
    """Measure a batch of tasks: created while the worker is paused, then run, then read."""
    batch = Batch(server)
    with _paused(server):
        created = server.lap(lambda: batch.create(BATCH_TASKS))
    completed = server.lap(batch.finish)
    read = server.lap(batch.read)
    for (step, role), lap in zip(STEPS.items(), (created, completed, read), strict=True):
        own, redis = lap.cpu[role], lap.cpu["redis"]
        yield Step(store, step, round_number, *(value * 1e6 / BATCH_TASKS for value in (own, redis, lap.seconds)))


@contextmanager
def _paused(server: TaskServer) -> Iterator[None]:
    assert server.worker is not None
    server.worker.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.worker.process.send_signal(signal.SIGCONT)


def memory(cores: Cores) -> dict[str, float]:
    """Return the bytes of Redis's memory that a task takes in total, by its status."""
    _tell("memory")
    taken: dict[str, float] = {}
    with _ours(cores, works=False) as idle:
        taken["queued"] = _taken(idle, "repeat", None)
    with _ours(cores) as working:
        taken["waiting"] = _taken(working, "wait", "input_required")
        taken["done"] = _taken(working, "repeat", "completed")
    return taken


def _taken(server: TaskServer, tool: str, status: str | None) -> float:
    _fill_and_forget(server)
    before = server.redis.used_memory()
    batch = Batch(server, tool)
    batch.create(MEMORY_TASKS)
    if status is not None:
        batch.finish(status)
    return (server.redis.used_memory() - before) / MEMORY_TASKS


def _fill_and_forget(server: TaskServer) -> None:
    """Warm Redis up with everything that does not belong to a task, such as scripts and connection buffers."""
    Batch(server).create(FEW_TASKS)
    server.redis.ask("FLUSHALL", "SYNC")


@contextmanager
def _fastmcp(cores: Cores) -> Iterator[TaskServer]:
    with servers.redis_server(cores.load) as redis, servers.fastmcp(cores, redis) as http:
        yield TaskServer(FASTMCP, http, redis, [None] * CLIENTS)


@contextmanager
def _ours(cores: Cores, *, works: bool = True) -> Iterator[TaskServer]:
    with ExitStack() as stack:
        redis = stack.enter_context(servers.redis_server(cores.load))
        environment = servers.production(
            GATEWAY_REDIS_URL=redis.url,
            GATEWAY_TASKS_PER_PRINCIPAL=QUOTA,
            GATEWAY_TASK_BYTES_PER_PRINCIPAL=str(2**40),
            **servers.NEVER_OVERLOADED,
        )
        http = stack.enter_context(servers.ours(cores, environment))
        worker = stack.enter_context(servers.worker(cores, environment)) if works else None
        tokens = [servers.token_for(f"client-{number}", environment) for number in range(CLIENTS)]
        yield TaskServer(OURS, http, redis, tokens, worker)


def summary(
    options: Options, races: Sequence[Race], steps: Sequence[Step], bytes_per_task: Mapping[str, float]
) -> Section:
    """Sum up the measurements."""
    servers_by_name = {name: _medians([run for run in races if run.server == name]) for name in (FASTMCP, OURS)}
    costs = {
        (step, store): _medians([run for run in steps if (run.step, run.store) == (step, store)])
        for step in STEPS
        for store in STORES
    }
    verdicts = [
        _judge_race(servers_by_name[OURS], servers_by_name[FASTMCP]),
        _judge_flatness(costs, options.stored_tasks),
    ]
    lines = [
        "## Tasks",
        "",
        f"Medians of {options.rounds} interleaved rounds. {CLIENTS} clients create tasks one after the other, then "
        f"poll theirs, the oldest first, with {POLL_SECONDS:g} s between two polls of an unfinished one. The replica "
        "and the worker of a server are on one core; its Redis, which writes nothing to disk, and the clients are on "
        "another. "
        f"Python {platform.python_version()}.",
        "",
        *table(
            ("create → completed", "tasks/s", "CPU µs a task", "of Redis", "polls a task", "share of the core"),
            (_race_row(name, medians) for name, medians in servers_by_name.items()),
        ),
        "",
        *table(
            ("step of a task of ours, µs", "cost", f"{FEW_TASKS} stored", f"{options.stored_tasks:,} stored", "ratio"),
            (row for step in STEPS for row in _step_rows(step, costs[step, FEW], costs[step, MANY])),
            texts=2,
        ),
        "",
        "`create` is measured while the worker is paused; `run` is the work of the worker, and of Redis for it and for "
        "the polls; `get` reads a completed task.",
        "",
        *table(
            ("a task of ours that is", "takes KB of Redis"),
            ((phase, f"{size / 1000:.1f}") for phase, size in bytes_per_task.items()),
        ),
    ]
    document = {
        "rounds": options.rounds,
        "stored": options.stored_tasks,
        "race": servers_by_name,
        "steps": {f"{step}, {store}": medians for (step, store), medians in costs.items()},
        "bytes_per_task": dict(bytes_per_task),
        "runs": [*(run._asdict() for run in races), *(run._asdict() for run in steps)],
    }
    return Section("tasks", "a replica and a worker", "\n".join(lines) + "\n", document, verdicts)


def _medians(runs: Sequence[Race] | Sequence[Step]) -> dict[str, float]:
    """Return the median of each number over several runs."""
    columns = {name: [getattr(run, name) for run in runs] for name in runs[0]._fields if name != "round"}
    return {name: statistics.median(column) for name, column in columns.items() if not isinstance(column[0], str)}


def _judge_race(ours: Mapping[str, float], fastmcp: Mapping[str, float]) -> Verdict:
    by_clock = ours["tasks_per_second"] / fastmcp["tasks_per_second"]
    by_cpu = fastmcp["server_cpu_us"] / ours["server_cpu_us"]
    disturbed = min(ours["server_busy"], fastmcp["server_busy"]) < DISTURBED_SERVER
    measured = f"{by_clock:.2f} × by the clock, {by_cpu:.2f} × by CPU time"
    if disturbed:
        measured += f"; a server got less than {DISTURBED_SERVER:.0%} of its core, so CPU time decides"
    return goals.TASKS_BESIDE_FASTMCP.judge(by_cpu if disturbed else by_clock, measured)


def _judge_flatness(costs: Mapping[tuple[str, str], Mapping[str, float]], stored: int) -> Verdict:
    """Judge by the CPU time of all processes, including Redis, as other programs disturb it less than the clock."""
    growth = {step: _cpu_us(costs[step, MANY]) / _cpu_us(costs[step, FEW]) for step in STEPS}
    measured = ", ".join(f"{step} {ratio:.2f} ×" for step, ratio in growth.items())
    return goals.TASKS_FLAT.judge(max(growth.values()), f"{measured}; {stored:,} stored, compared with {FEW_TASKS}")


def _cpu_us(cost: Mapping[str, float]) -> float:
    return cost["ours_cpu_us"] + cost["redis_cpu_us"]


def _race_row(name: str, medians: Mapping[str, float]) -> list[str]:
    rate, polls = f"{medians['tasks_per_second']:,.0f}", f"{medians['polls_per_task']:.2f}"
    own, redis = f"{medians['server_cpu_us']:,.0f}", f"{medians['redis_cpu_us']:,.0f}"
    return [name, rate, own, redis, polls, f"{medians['server_busy']:.0%}"]


def _step_rows(step: str, few: Mapping[str, float], many: Mapping[str, float]) -> Iterator[list[str]]:
    for cost, label in COSTS.items():
        if (step, cost) == POLLED:
            continue
        yield [step, label, f"{few[cost]:.0f}", f"{many[cost]:.0f}", f"{many[cost] / few[cost]:.2f}"]


def _tell(what: str) -> None:
    print(f"tasks: {what}", file=sys.stderr, flush=True)
