"""The engine's host on asyncio: threads, yielding, and the time limit of a leg."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.authoring.asyncio_host import AsyncioHost
from gateway.engine.outcomes import LegCrashed, LegTimedOut
from gateway.engine.stoppable_leg import LegStopped

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="unset")


@pytest.fixture
def host() -> Iterator[AsyncioHost]:
    made = AsyncioHost(None, "replica-1", threads=2)
    yield made
    made.close()


async def forever() -> None:
    await asyncio.Event().wait()


async def test_blocking_functions_run_in_other_threads_with_the_callers_context(host: AsyncioHost) -> None:
    VARIABLE.set("mine")
    thread, value, added = await host.run_sync(lambda a, b: (threading.current_thread(), VARIABLE.get(), a + b), 1, 2)
    assert thread is not threading.current_thread()
    assert (value, added) == ("mine", 3)


async def test_what_a_blocking_function_raises_comes_back(host: AsyncioHost) -> None:
    def fail(error: BaseException) -> None:
        raise error

    with pytest.raises(LookupError, match="mine"):
        await host.run_sync(fail, LookupError("mine"))
    with pytest.raises(SystemExit):
        await host.run_sync(fail, SystemExit(1))
    with pytest.raises(RuntimeError, match="StopIteration"):
        await host.run_sync(next, iter(()))


async def test_only_so_many_blocking_functions_run_at_once(host: AsyncioHost) -> None:
    running, most, lock, barrier = 0, 0, threading.Lock(), threading.Barrier(2)

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        barrier.wait(10)
        with lock:
            running -= 1

    await asyncio.gather(*(host.run_sync(work) for _ in range(8)))
    assert most == 2


async def test_the_threads_end_when_the_host_is_closed() -> None:
    host = AsyncioHost(None, "replica-1")
    thread = await host.run_sync(threading.current_thread)
    host.close()
    thread.join(10)
    assert not thread.is_alive()


async def test_yielding_lets_others_run_once(host: AsyncioHost) -> None:
    ran: list[int] = []
    asyncio.get_running_loop().call_soon(ran.append, 1)
    await host.yield_now()
    assert ran == [1]


async def test_a_parked_caller_stays_where_it_is(host: AsyncioHost) -> None:
    task = asyncio.ensure_future(host.park())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()


def test_parking_without_a_loop_suspends_all_the_same(host: AsyncioHost) -> None:
    """The collector closes an abandoned function anywhere."""
    parked = host.park()
    assert parked.send(None) is None
    parked.close()


async def test_the_value_within_the_limit_comes_back() -> None:
    async def value() -> int:
        return 5

    for limit in (None, 10):
        assert await AsyncioHost(limit, "r").bounded(value()) == 5


async def test_the_limit_cancels_the_leg() -> None:
    cancelled: list[bool] = []

    async def leg() -> None:
        try:
            await forever()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    with pytest.raises(LegTimedOut) as caught:
        await AsyncioHost(0.01, "r").bounded(leg())
    assert (caught.value.seconds, cancelled) == (0.01, [True])
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@pytest.mark.parametrize("error", [TimeoutError("mine"), LookupError("mine"), LegStopped()], ids=repr)
async def test_what_a_leg_raises_passes_through(host: AsyncioHost, error: BaseException) -> None:
    async def leg() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        await host.bounded(leg())
    assert caught.value is error


@pytest.mark.parametrize(
    "error",
    [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError(), BaseExceptionGroup("g", [LegStopped()])],
    ids=repr,
)
async def test_what_would_end_the_task_or_the_process_is_a_crash(host: AsyncioHost, error: BaseException) -> None:
    async def leg() -> None:
        raise error

    with pytest.raises(LegCrashed) as caught:
        await host.bounded(leg())
    assert caught.value.__cause__ is error


async def test_cancelling_the_task_that_runs_the_leg_passes_through(host: AsyncioHost) -> None:
    task: asyncio.Task[Any] = asyncio.ensure_future(host.bounded(forever()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_changes_are_announced_to_the_listener() -> None:
    told: list[str] = []
    AsyncioHost(None, "r", on_change=told.append).changed("tools")
    AsyncioHost(None, "r").changed("tools")
    assert told == ["tools"]


async def test_busy_threads_are_counted(host: AsyncioHost) -> None:
    entered, leave = threading.Event(), threading.Event()

    def work() -> None:
        entered.set()
        leave.wait(10)

    task = asyncio.ensure_future(host.run_sync(work))
    assert await asyncio.to_thread(entered.wait, 10)
    assert host.busy_threads == 1
    leave.set()
    await task
    assert host.busy_threads == 0


async def test_callers_get_threads_in_turn(host: AsyncioHost) -> None:
    gate, done = threading.Event(), []

    def work(name: str) -> None:
        gate.wait()
        done.append(name)

    calls = [asyncio.ensure_future(host.run_sync(work, "greedy", caller="greedy")) for _ in range(8)]
    await asyncio.sleep(0)
    calls.append(asyncio.ensure_future(host.run_sync(work, "other", caller="other")))
    await asyncio.sleep(0)
    assert host.waiting_for_threads == 7
    gate.set()
    await asyncio.gather(*calls)
    assert "other" in done[:4]
    assert host.waiting_for_threads == 0


async def until_busy(host: AsyncioHost, threads: int) -> None:
    while host.busy_threads < threads:  # noqa: ASYNC110 - threads begin when they do
        await asyncio.sleep(0.001)


async def test_a_thread_is_free_when_its_function_ends_not_when_somebody_stops_waiting_for_it(
    host: AsyncioHost,
) -> None:
    gate = threading.Event()
    busy = [asyncio.ensure_future(host.run_sync(gate.wait)) for _ in range(2)]
    await until_busy(host, 2)
    waiting = [asyncio.ensure_future(host.run_sync(threading.get_ident)) for _ in range(2)]
    await asyncio.sleep(0)
    for call in (*busy, waiting[0]):
        call.cancel()
    await asyncio.gather(*busy, waiting[0], return_exceptions=True)
    assert host.waiting_for_threads == 1
    gate.set()
    assert isinstance(await waiting[1], int)
