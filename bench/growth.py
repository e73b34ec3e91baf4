"""How costs grow: with the state of a call, with a replica's tools and open streams, with the size of the store.

Everything runs in this process. Its CPU time and that of Redis are measured in interleaved rounds; the lowest counts,
as disturbances only add.
"""

from __future__ import annotations

import asyncio
import gc
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple
from unittest.mock import patch

import uvloop

from bench import goals, servers
from bench.cases import answering, request
from bench.counts.cases import (
    NUMBER,
    TEXT,
    Case,
    carrying,
    completes,
    create,
    creates,
    echo,
    greet,
    last_leg,
    make_replica,
    token_of,
)
from bench.counts.replica import PORT, Replica
from bench.curves import plot
from bench.goals import Goal, Verdict
from bench.options import Options
from bench.report import Section
from bench.servers import Cores, Redis
from bench.tables import table

FLAT: Final = 1.25
"""Costs that must not grow may differ by this factor between the smallest and the largest size."""
ANSWERS: Final = "answers"
SLICE_SECONDS: Final = 0.05
"""How long one point is measured in one round."""
WARMUP: Final = 5


@dataclass(slots=True)
class Curve:
    """The cost of a request by size.

    Attributes:
        name: what grows.
        unit: the unit of `sizes`.
        sizes: the sizes of the points, ascending.
        is_flat: whether size must not matter; otherwise the cost may grow in proportion.
        cases: a case for each size.
        redis: the server whose CPU time counts too.
        rounds: the CPU time of a request in microseconds, by round and size.
    """

    name: str
    unit: str
    sizes: Sequence[int]
    is_flat: bool
    cases: list[Case] = field(default_factory=list)
    redis: Redis | None = None
    rounds: list[list[float]] = field(default_factory=list)

    @property
    def label(self) -> str:
        """The name of what grows, with its unit if the name lacks it."""
        return self.name if self.name.endswith(self.unit) else f"{self.name} ({self.unit})"

    @property
    def costs(self) -> list[float]:
        """The CPU time of a request in microseconds, by size."""
        return [min(of_size) for of_size in zip(*self.rounds, strict=True)]


class Fit(NamedTuple):
    """A straight line through the points of a curve, and the exponent of its upper half.

    Attributes:
        start: the cost at size zero.
        slope: the cost of one more.
        exponent: 1 for linear growth, 2 for quadratic growth.
        factor: the cost of the largest size, divided by that of the smallest.
    """

    start: float
    slope: float
    exponent: float
    factor: float


def fit(sizes: Sequence[float], costs: Sequence[float]) -> Fit:
    """Fit a curve.

    The exponent is that of the larger sizes, where the fixed cost of a request weighs least. If the fixed cost still
    dominates there, the exponent is smaller.
    """
    slope, start = statistics.linear_regression(sizes, costs)
    upper = [(math.log(size), math.log(cost)) for size, cost in zip(sizes, costs, strict=True) if size > 0]
    upper = upper[len(upper) // 2 :]
    exponent = statistics.linear_regression(*zip(*upper, strict=True)).slope
    return Fit(start, slope, exponent, costs[-1] / costs[0])


def section(options: Options, _cores: Cores) -> Section:
    """Measure growth and sum it up.

    Raises:
        WrongAnswer, LoadError, ServerError: something cannot be measured.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        curves = runner.run(_measure(options.rounds))
    return summary(curves, options.reports)


async def _measure(rounds: int) -> list[Curve]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        redis = stack.enter_context(servers.redis_server(None))
        world = _World(stack, folder, redis)
        curves = [await make() for make in world.curves()]
        gc.collect()
        gc.freeze()  # as in production
        for round_number in range(rounds):
            _tell(f"round {round_number + 1} of {rounds}")
            for curve in curves:
                curve.rounds.append([await _cost_us(case, curve.redis) for case in curve.cases])
    return curves


async def _cost_us(case: Case, redis: Redis | None) -> float:
    """Return the CPU time of one request of a case, of this process and of Redis."""
    for number in range(WARMUP):
        await case.send(number)

    def cpu_seconds() -> float:
        return time.process_time() + (0.0 if redis is None else redis.cpu_seconds())

    done, before, until = 0, cpu_seconds(), time.perf_counter() + SLICE_SECONDS
    while done < WARMUP or time.perf_counter() < until:
        await case.replica.exchange(case.requests[done % len(case.requests)])
        done += 1
    return (cpu_seconds() - before) * 1e6 / done


class _World:
    """Makes the curves, with replicas that run until the stack is closed."""

    def __init__(self, stack: AsyncExitStack, folder: Path, redis: Redis) -> None:
        self._stack = stack
        self._folder = folder
        self._redis = redis

    def curves(self) -> list[Callable[[], Awaitable[Curve]]]:
        """Return the functions that make the curves."""
        return [self.state, self.answers, self.tools, self.streams, self.replicas, self.stored]

    async def _replica(self, tools: str = "bench.tools", **settings: object) -> Replica:
        return await self._stack.enter_async_context(make_replica(self._folder, tools, **settings).running())

    async def state(self) -> Curve:
        """Make the curve of a call's last leg, by the size of its state."""
        curve, replica = Curve("state of a call", "KiB", (1, 2, 4, 8, 16, 32, 64), is_flat=False), await self._replica()
        curve.cases = [await carrying(replica, kib) for kib in curve.sizes]
        return curve

    async def answers(self) -> Curve:
        """Make the curve of a call's last leg, by the number of answers it replays."""
        curve, replica = Curve(ANSWERS, "keys", (1, 2, 5, 10, 20, 50, 100), is_flat=False), await self._replica()
        curve.cases = [await last_leg(replica, keys) for keys in curve.sizes]
        return curve

    async def tools(self) -> Curve:
        """Make the curve of a call, by the number of registered tools."""
        curve = Curve("registered tools", "tools", (1, 10, 100, 1000), is_flat=True)
        for size in curve.sizes:
            with patch.dict(os.environ, {"BENCH_TOOLS": str(size)}):
                sys.modules.pop("bench.many_tools", None)
                replica = await self._replica("bench.many_tools")
            curve.cases.append(_echo_case(replica))
        return curve

    async def streams(self) -> Curve:
        """Make the curve of a call, by the number of open streams."""
        curve = Curve("open streams", "streams", (0, 10, 100, 1000), is_flat=True)
        listen = request(
            PORT, NUMBER, "subscriptions/listen", "", {"notifications": {"toolsListChanged": True}}, token=token_of()
        )
        for size in curve.sizes:
            replica = await self._replica(streams_per_principal=100_000, max_inflight=10_000)
            for _ in range(size):
                await replica.keep_open(listen)
            curve.cases.append(_echo_case(replica))
        return curve

    async def replicas(self) -> Curve:
        """Make the curve of a call's last leg that another replica began, by the number of replicas."""
        curve = Curve("replicas", "replicas", (1, 2, 4, 8, 16), is_flat=True)
        everyone = [await self._replica(replica_id=f"r{number}") for number in range(max(curve.sizes))]
        for size in curve.sizes:
            asked = [(await replica.exchange(greet(1, {}))).body for replica in everyone[1:size] or everyone[:1]]
            answered = [greet(1, answering(body, "Ada")) for body in asked]
            curve.cases.append(Case(f"{size} replicas", everyone[0], answered, completes("Hello, Ada!")))
        return curve

    async def stored(self) -> Curve:
        """Make the curve of a task's creation, by the number of stored tasks."""
        curve = Curve("stored tasks", "tasks", (1000, 3000, 10_000), is_flat=True, redis=self._redis)
        for number, size in enumerate(curve.sizes):
            _tell(f"storing {size:,} tasks")
            url = self._redis.url.removesuffix("/0") + f"/{number}"
            replica = await self._replica(redis_url=url, tasks_per_principal=1_000_000, task_bytes_per_principal=2**40)
            case = Case(f"{size} stored", replica, [create()], creates)
            for done in range(size):
                await case.send(done)
            curve.cases.append(case)
        return curve


def _echo_case(replica: Replica) -> Case:
    return Case("echo", replica, [echo()], completes(TEXT))


def summary(curves: Sequence[Curve], reports: Path) -> Section:
    """Sum up the curves, and draw them."""
    fits = {curve.name: fit(curve.sizes, curve.costs) for curve in curves}
    verdicts = [_judge(curve, fits[curve.name]) for curve in curves]
    if ANSWERS in fits:
        verdicts.append(goals.REPLAY_A_KEY.judge(fits[ANSWERS].slope))
    picture = plot({curve.label: (curve.sizes, curve.costs) for curve in curves}, reports)
    lines = [
        "## Growth",
        "",
        "CPU µs of one request in process, the lowest of all rounds; for stored tasks including Redis and the wait for "
        "it.",
        "",
        *table(
            ("with more", "costs µs at", "one more costs µs", "exponent", "largest / smallest"),
            (_row(curve, fits[curve.name]) for curve in curves),
            texts=2,
        ),
        "",
        f"![Growth]({picture.name})",
    ]
    document = {
        "curves": {
            curve.name: {"unit": curve.unit, "sizes": list(curve.sizes), "cpu_us": curve.costs}
            | fits[curve.name]._asdict()
            for curve in curves
        },
    }
    return Section("growth", "a replica in this process", "\n".join(lines) + "\n", document, verdicts)


def _judge(curve: Curve, found: Fit) -> Verdict:
    if curve.is_flat:
        return Goal(f"more {curve.name}: the largest compared with the smallest", FLAT).judge(found.factor)
    linear = goals.REPLAY_EXPONENT
    goal = linear if curve.name == ANSWERS else Goal(f"more {curve.name}: exponent", linear.bound, linear.unit)
    return goal.judge(found.exponent)


def _row(curve: Curve, found: Fit) -> list[str]:
    points = ", ".join(f"{size:,}: {cost:.0f}" for size, cost in zip(curve.sizes, curve.costs, strict=True))
    return [
        curve.label,
        points,
        f"{found.slope:.3g}",
        f"{found.exponent:.2f}",
        f"{found.factor:.2f}",
    ]


def _tell(what: str) -> None:
    print(f"growth: {what}", file=sys.stderr, flush=True)
