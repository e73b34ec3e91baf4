"""Counts all cases in this process."""

from __future__ import annotations

import asyncio
import gc
import io
import itertools
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Final, NamedTuple, TypeVar
from unittest.mock import patch

import uvloop

from bench.clients import WrongAnswer
from bench.counts.cases import Case, all_cases
from bench.counts.meters import Calls, Instructions, Memory
from gateway.observability.logs import configure_logging

WARMUP: Final = 8
TIMES: Final = 6
"""How often each meter counts each case. Disturbances only add, so the lowest count is taken."""

CLOCK_STEP_SECONDS: Final = 1e-6

MeterT = TypeVar("MeterT", Calls, Instructions, Memory)


class Counted(NamedTuple):
    """The cost of one request of a case.

    Attributes:
        numbers: name → number.
        functions: function → instructions.
    """

    numbers: Mapping[str, int]
    functions: Mapping[str, int]


def count(wanted: Callable[[str], bool] = lambda _name: True) -> dict[str, Counted]:
    """Count the cases whose names are wanted.

    Raises:
        WrongAnswer: an answer is wrong.
        ServerError: there is no Redis server.
    """
    log = io.StringIO()
    configure_logging("info", "text", "r1", log)
    try:
        with _steady_clocks(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_count(wanted))
    except WrongAnswer as wrong:
        raise WrongAnswer(f"{wrong}\n{log.getvalue()[-3000:]}") from None


@contextmanager
def _steady_clocks() -> Iterator[None]:
    """Advance the clocks by a microsecond each time they are read, so code that depends on time always runs alike."""
    with ExitStack() as stack:
        for name in ("time", "monotonic", "perf_counter"):
            now = getattr(time, name)()
            stack.enter_context(patch.object(time, name, itertools.count(now, CLOCK_STEP_SECONDS).__next__))
        yield


async def _count(wanted: Callable[[str], bool]) -> dict[str, Counted]:
    async with all_cases(tokens=WARMUP + 3 * TIMES) as cases:
        gc.freeze()  # as in production
        return {case.name: await _count_case(case) for case in cases if wanted(case.name)}


async def _count_case(case: Case) -> Counted:
    async with _undisturbed(case):
        calls = await _least(case, 0, Calls, lambda meter: meter.python + meter.builtin)
        instructions = await _least(case, 1, Instructions, lambda meter: meter.total)
        tracemalloc.start()
        try:
            memory = await _least(case, 2, Memory, lambda meter: meter.peak_bytes)
        finally:
            tracemalloc.stop()
    numbers = {
        "python_calls": calls.python,
        "builtin_calls": calls.builtin,
        "instructions": instructions.total,
        "peak_bytes": memory.peak_bytes,
    }
    return Counted(numbers, instructions.by_function())


@asynccontextmanager
async def _undisturbed(case: Case) -> AsyncIterator[None]:
    """Warm a case up, and keep the garbage collector away from it."""
    with case.meanwhile():
        for number in range(WARMUP):
            await case.send(number)
        gc.collect()
        gc.disable()
        try:
            yield
        finally:
            gc.enable()


async def _least(case: Case, turn: int, make: Callable[[], MeterT], total: Callable[[MeterT], int]) -> MeterT:
    """Count a case repeatedly, and return the meter with the lowest count."""
    meters = []
    for number in range(WARMUP + turn * TIMES, WARMUP + (turn + 1) * TIMES):
        meter = make()
        await case.send(number, meter)
        meters.append(meter)
    return min(meters, key=total)
