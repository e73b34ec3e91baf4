"""SIGHUP while a process starts. `tests/integration/test_signals.py` sends it to real processes that serve."""

from __future__ import annotations

import asyncio
import signal

from gateway.process.signals import Hangups
from gateway.runtime.reread import rereading


async def test_a_hangup_of_a_process_that_starts_is_obeyed_once_it_serves() -> None:
    was_read = asyncio.Event()

    async def read() -> None:
        was_read.set()

    def end(*_: object) -> None:
        raise AssertionError("nothing ends it")

    with Hangups().caught() as hangups:
        signal.raise_signal(signal.SIGHUP)
        with hangups.obeyed(end), rereading(read):
            await asyncio.sleep(0)
            assert not was_read.is_set()
            hangups.ready()
            await asyncio.wait_for(was_read.wait(), 10)
