"""Background work: blocking functions in their own threads, and tasks that run while a context is open."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def in_thread(name: str, function: Callable[[], T]) -> T:
    """Run a blocking function in its own thread, called `name`, and return its result.

    Asyncio's thread pool is not suitable for functions that may hang, because an ending process waits for that pool. If
    the caller is cancelled, the thread keeps running.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            result = function()
        except Exception as error:  # noqa: BLE001 - raised in the caller
            settle(done.set_exception, error)
        else:
            settle(done.set_result, result)

    def settle(put: Callable[[Any], None], value: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody waits any more
            loop.call_soon_threadsafe(lambda: None if done.done() else put(value))

    threading.Thread(target=run, name=name, daemon=True).start()
    return await done


@contextlib.asynccontextmanager
async def task_running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a coroutine as a task while the context is open, then cancel it."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
