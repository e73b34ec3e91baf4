"""Blocking functions in their own threads."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from gateway.runtime.background import in_thread, task_running


async def test_the_result_of_a_thread_is_returned_and_its_error_raised() -> None:
    assert await in_thread("one", lambda: threading.current_thread().name) == "one"

    def fail() -> None:
        raise LookupError("why")

    with pytest.raises(LookupError, match="why"):
        await in_thread("two", fail)


async def test_a_caller_that_is_cancelled_leaves_its_thread_behind() -> None:
    may_end = threading.Event()
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    def block() -> None:
        loop.call_soon_threadsafe(began.set)
        may_end.wait()

    waiting = asyncio.create_task(in_thread("left", block))
    await began.wait()
    (left,) = (thread for thread in threading.enumerate() if thread.name == "left")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    may_end.set()
    await asyncio.to_thread(left.join)


PROGRAM = """
import asyncio, threading
from gateway.runtime.background import in_thread
async def main():
    began = asyncio.Event()
    loop = asyncio.get_running_loop()
    def hang():
        loop.call_soon_threadsafe(began.set)
        threading.Event().wait()
    task = asyncio.create_task(in_thread("hangs", hang))
    await began.wait()
asyncio.run(main())
print("over")
"""


def test_a_thread_that_hangs_does_not_hold_up_the_end_of_the_process() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "over\n"
    assert ended.stderr == ""


async def test_a_task_runs_while_its_context_is_open_and_no_longer() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with task_running(work()):
        await began.wait()
        assert not ended.is_set()
    assert ended.is_set()
