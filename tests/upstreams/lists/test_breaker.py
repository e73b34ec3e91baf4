"""When an upstream is probed after failures, when requests to it are refused, and when they are let through again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from gateway.upstreams.breaker import FAILURES, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, Breaker


class Probed:
    """A breaker whose probes and pauses tests answer. `moved` is set when it asks for one of both."""

    def __init__(self) -> None:
        self.works = False
        self.probes = 0
        self.pauses: list[float] = []
        self.rests = asyncio.Semaphore(0)
        self.moved = asyncio.Event()
        self.changes: list[bool] = []
        self.closed = asyncio.Event()
        self.breaker = Breaker(self._probe, self._changed, pause=self._pause)

    def _changed(self, is_open: bool) -> None:
        self.changes.append(is_open)
        if not is_open:
            self.closed.set()

    async def _probe(self) -> bool:
        self.probes += 1
        return self.works

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.moved.set()
        await self.rests.acquire()

    async def paused(self) -> None:
        """Wait until it pauses after a probe."""
        async with asyncio.timeout(5):
            await self.moved.wait()
        self.moved.clear()

    async def rested(self) -> None:
        """End its pause, and wait until the next one."""
        self.rests.release()
        await self.paused()

    def fail(self, times: int = FAILURES) -> None:
        for _ in range(times):
            self.breaker.failed()


@pytest.fixture
async def probed() -> AsyncIterator[Probed]:
    probed = Probed()
    running = asyncio.create_task(probed.breaker.run())
    yield probed
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_it_opens_after_repeated_failures_if_its_own_probe_fails_too_and_says_so_once(probed: Probed) -> None:
    probed.fail(FAILURES - 1)
    await asyncio.sleep(0)
    assert probed.probes == 0
    probed.fail(1)
    await probed.paused()
    assert probed.breaker.is_open
    await probed.rested()
    assert probed.changes == [True]


async def test_a_probe_that_succeeds_keeps_it_closed_and_more_failures_cause_no_flood_of_probes(probed: Probed) -> None:
    probed.works = True
    probed.fail()
    await probed.paused()
    probed.fail(10 * FAILURES)
    await asyncio.sleep(0)
    assert (probed.probes, probed.pauses, probed.changes) == (1, [FIRST_PAUSE_SECONDS], [])


async def test_a_success_between_failures_causes_no_probe(probed: Probed) -> None:
    for _ in range(3):
        probed.fail(FAILURES - 1)
        probed.breaker.succeeded()
    await asyncio.sleep(0)
    assert probed.probes == 0


async def test_it_closes_when_a_probe_succeeds_without_any_call(probed: Probed) -> None:
    probed.fail()
    await probed.paused()
    probed.works = True
    probed.rests.release()
    async with asyncio.timeout(5):
        await probed.closed.wait()
    assert probed.changes == [True, False]


async def test_probes_that_fail_make_the_pauses_longer_up_to_a_limit(probed: Probed) -> None:
    probed.fail()
    await probed.paused()
    for _ in range(6):
        await probed.rested()
    assert probed.pauses == [1, 2, 4, 8, 16, LONGEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS]


async def test_it_is_not_open_once_nobody_would_close_it() -> None:
    probed = Probed()
    running = asyncio.create_task(probed.breaker.run())
    probed.fail()
    await probed.paused()
    running.cancel()
    await asyncio.wait({running})
    assert not probed.breaker.is_open
    assert probed.changes == [True]  # the gauge belongs to another one now
