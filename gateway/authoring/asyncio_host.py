"""The engine's host on asyncio: a bounded thread pool, yielding, and the time limit of a leg."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import time
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Never, TypeVar

from gateway.engine.outcomes import LegCrashed, LegTimedOut
from gateway.engine.stoppable_leg import LegStopped
from gateway.runtime.fairness import FairQueue

T = TypeVar("T")

DEFAULT_THREADS = 32
"""How many blocking functions run at once in one process. More wait, and callers take turns."""


class AsyncioHost:
    """Runs legs on the running event loop; implements `gateway.engine.host.Host`.

    `limit_seconds` is None for no limit. `on_change` is called with what a tool announces as changed, on any thread.
    """

    time = staticmethod(time.monotonic)
    """See `gateway.engine.host.Host.time`."""

    def __init__(
        self,
        limit_seconds: float | None,
        replica_id: str,
        threads: int = DEFAULT_THREADS,
        on_change: Callable[[str], None] = lambda _what: None,
    ) -> None:
        self.replica_id = replica_id
        self._on_change = on_change
        self._limit_seconds = limit_seconds
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="step")
        self._busy: set[int] = set()
        self._taken = 0
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue()

    @property
    def busy_threads(self) -> int:
        """The number of threads that run a blocking function now, even if its leg has ended."""
        return len(self._busy)

    @property
    def waiting_for_threads(self) -> int:
        """The number of blocking functions that wait for a thread now."""
        return self._queue.size

    async def run_sync(self, function: Callable[..., T], *args: Any, caller: Hashable = None) -> T:
        """Run a blocking function in the pool, with the caller's context variables.

        While others wait, no caller gets more than half of the threads.
        """
        context = contextvars.copy_context()

        def call() -> Callable[[], T]:
            thread = threading.get_ident()
            self._busy.add(thread)
            try:
                value = context.run(function, *args)
            except BaseException as error:  # noqa: BLE001 - it is raised for the caller
                return partial(_raise, error)
            finally:
                self._busy.discard(thread)
            return lambda: value

        await self._take_thread(caller)
        loop = asyncio.get_running_loop()

        def ended(_running: Future[Callable[[], T]]) -> None:
            # The thread is free when the function ends, not when its caller stops waiting.
            with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody needs the thread
                loop.call_soon_threadsafe(self._free_thread, caller)

        try:
            running = self._pool.submit(call)
        except RuntimeError:
            self._free_thread(caller)
            raise
        running.add_done_callback(ended)
        # An error is raised here. If the future raised it, compiled coroutines would lose its traceback.
        outcome = await asyncio.wrap_future(running)
        try:
            return outcome()
        finally:
            del outcome  # the traceback of an error holds this frame, which must not hold the error

    async def _take_thread(self, caller: Hashable) -> None:
        """Wait until a thread is free for this caller, and count it as taken."""
        if self._taken < self._threads and not self._queue.size:
            self._taken += 1
            self._queue.take(caller)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.add(caller, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._queue.remove(caller, turn)
            else:  # the thread was assigned, but its caller is gone
                self._free_thread(caller)
            raise

    def _free_thread(self, caller: Hashable) -> None:
        self._taken -= 1
        self._queue.free(caller)
        while self._taken < self._threads:
            given = self._queue.next(self._threads)
            if given is None:
                return
            whose, turn = given
            if turn.done():
                self._queue.free(whose)
            else:
                self._taken += 1
                turn.set_result(None)

    def changed(self, what: str) -> None:
        """Announce that a list or the content of a resource has changed."""
        self._on_change(what)

    async def yield_now(self) -> None:
        """Let every other task that is ready run once."""
        await asyncio.sleep(0)

    async def park(self) -> None:
        """Suspend the caller forever."""
        try:
            forever = asyncio.get_running_loop().create_future()
        except RuntimeError:  # the garbage collector closes the caller, and there is no loop to wait on
            await asyncio.sleep(0)
        else:
            await forever

    def _least(self, seconds: float | None) -> float | None:
        """Return the time limit of a leg whose function may take so many seconds, or None if nothing limits it."""
        return min((each for each in (self._limit_seconds, seconds) if each is not None), default=None)

    async def bounded(
        self, leg: Awaitable[T], began: float | None = None, *, limited: bool = True, seconds: float | None = None
    ) -> T:
        """Await `leg` within the time limit, or `seconds` if that is less, from `began` or from now.

        If it is not `limited`, nothing limits it here.

        A `TimeoutError` that the function itself raises passes through unchanged.

        Raises:
            LegTimedOut: the leg did not finish within the limit.
            LegCrashed: the leg raised `SystemExit`, `KeyboardInterrupt`, a cancellation that nobody requested, or
                another `BaseException`.
        """
        spent = 0.0 if began is None else self.time() - began
        limit = self._least(seconds) if limited else None
        timeout = asyncio.timeout(None if limit is None else max(0.0, limit - spent))
        try:
            async with timeout:
                return await leg
        except (TimeoutError, asyncio.CancelledError) as error:
            # Before Python 3.13 a failed TaskGroup can leave its task marked as being cancelled (`cancelling()`);
            # then `asyncio.timeout` lets its own cancellation out instead of a TimeoutError.
            if timeout.expired() and limit is not None:
                raise LegTimedOut(limit) from None
            task = asyncio.current_task()
            if isinstance(error, TimeoutError) or task is None or task.cancelling():
                raise
            raise LegCrashed(type(error).__name__) from error
        except (Exception, LegStopped, GeneratorExit):
            raise
        except BaseException as error:
            raise LegCrashed(type(error).__name__) from error

    def close(self) -> None:
        """Release the threads. Functions that still run finish on their own."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _raise(error: BaseException) -> Never:
    try:
        raise error
    finally:
        del error
