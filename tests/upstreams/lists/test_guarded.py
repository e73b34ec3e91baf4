"""Requests of callers keep to the limits of an upstream."""

from __future__ import annotations

import asyncio

import pytest

from gateway.errors import Overloaded
from gateway.upstreams.breaker import FAILURES, Breaker
from gateway.upstreams.bulkhead import Bulkhead
from gateway.upstreams.failures import Reason, UpstreamError, UpstreamFailure
from gateway.upstreams.guarded import GuardedClient
from gateway.upstreams.ports import NOBODY
from tests.upstreams.lists.fakes import FakeUpstream, unreachable


class Guarded:
    """A client with limits. The breaker of it is probed as the upstream answers."""

    def __init__(self, places: int = 4) -> None:
        self.upstream = FakeUpstream()
        self.upstream.results["tools/call"] = {"content": []}
        self.opened, self.closed = asyncio.Event(), asyncio.Event()
        self.breaker = Breaker(self._works, self._changed, pause=lambda _seconds: asyncio.sleep(0))
        bulkhead = Bulkhead(places, None, lambda _number: None, wait_seconds=0.01)
        self.client = GuardedClient("bugs", self.upstream, self.breaker, bulkhead)

    async def _works(self) -> bool:
        return self.upstream.problem is None

    def _changed(self, is_open: bool) -> None:
        (self.opened if is_open else self.closed).set()

    async def call(self) -> None:
        await self.client.request("tools/call", {}, requester=NOBODY, seconds=1, max_bytes=1000)

    async def fail(self, times: int = 1) -> None:
        for _ in range(times):
            with pytest.raises(UpstreamFailure):
                await self.call()


async def test_after_repeated_failures_nothing_is_sent_until_a_probe_succeeds() -> None:
    guarded = Guarded()
    running = asyncio.create_task(guarded.breaker.run())
    guarded.upstream.problem = unreachable()
    await guarded.fail(FAILURES)
    async with asyncio.timeout(5):
        await guarded.opened.wait()
    sent = len(guarded.upstream.asked)
    with pytest.raises(UpstreamFailure) as refused:
        await guarded.call()
    assert (refused.value.reason, refused.value.sent) == (Reason.BREAKER_OPEN, False)
    assert len(guarded.upstream.asked) == sent
    guarded.upstream.problem = None
    async with asyncio.timeout(5):
        await guarded.closed.wait()
    await guarded.call()
    running.cancel()


async def test_errors_of_the_upstreams_own_show_that_it_works() -> None:
    guarded = Guarded()
    for _ in range(3):
        guarded.upstream.problem = unreachable()
        await guarded.fail(FAILURES - 1)
        guarded.upstream.problem = UpstreamError("bugs", -32602, "no")
        with pytest.raises(UpstreamError):
            await guarded.call()


@pytest.mark.parametrize("reason", [each for each in Reason if each is not Reason.UNREACHABLE])
async def test_failures_that_a_caller_can_cause_take_the_upstream_from_nobody(reason: Reason) -> None:
    guarded = Guarded()
    running = asyncio.create_task(guarded.breaker.run())
    guarded.upstream.problem = UpstreamFailure("bugs", reason, sent=True)
    await guarded.fail(2 * FAILURES)
    guarded.upstream.problem = None
    await guarded.call()
    assert not guarded.opened.is_set()
    running.cancel()


async def test_an_upstream_that_serves_nobody_now_counts_as_one_that_cannot_be_reached() -> None:
    guarded = Guarded()
    running = asyncio.create_task(guarded.breaker.run())
    guarded.upstream.problem = UpstreamFailure("bugs", Reason.SERVER_ERROR, sent=False, is_unavailable=True)
    await guarded.fail(FAILURES)
    async with asyncio.timeout(5):
        await guarded.opened.wait()
    running.cancel()


async def test_a_request_without_a_place_is_not_sent() -> None:
    guarded = Guarded(places=1)
    guarded.upstream.gate.clear()
    holding = asyncio.create_task(guarded.call())
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await guarded.call()
    assert len(guarded.upstream.asked) == 1
    guarded.upstream.gate.set()
    await holding
    await guarded.call()
