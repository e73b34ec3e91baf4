"""Requests of callers keep to the limits of an upstream."""

from __future__ import annotations

import asyncio

import pytest

from gateway.errors import Overloaded
from gateway.upstreams.breaker import FAILURES, FIRST_PAUSE_SECONDS, Breaker
from gateway.upstreams.bulkhead import Bulkhead
from gateway.upstreams.failures import Reason, UpstreamError, UpstreamFailure
from gateway.upstreams.guarded import GuardedClient
from gateway.upstreams.ports import NOBODY
from tests.upstreams.lists.fakes import FakeUpstream, unreachable


class Guarded:
    """A client with limits, and a clock that tests turn."""

    def __init__(self, places: int = 4) -> None:
        self.now = 0.0
        self.upstream = FakeUpstream()
        self.upstream.results["tools/call"] = {"content": []}
        breaker = Breaker(lambda: self.now, lambda _is_open: None)
        bulkhead = Bulkhead(places, None, lambda _number: None, wait_seconds=0.01)
        self.client = GuardedClient("bugs", self.upstream, breaker, bulkhead)

    async def call(self) -> None:
        await self.client.request("tools/call", {}, requester=NOBODY, seconds=1, max_bytes=1000)

    async def fail(self, times: int = 1) -> None:
        for _ in range(times):
            with pytest.raises(UpstreamFailure):
                await self.call()


async def test_after_repeated_failures_nothing_is_sent_until_a_probe_succeeds() -> None:
    guarded = Guarded()
    guarded.upstream.problem = unreachable()
    await guarded.fail(FAILURES)
    sent = len(guarded.upstream.asked)
    with pytest.raises(UpstreamFailure) as refused:
        await guarded.call()
    assert (refused.value.reason, refused.value.sent) == (Reason.BREAKER_OPEN, False)
    assert len(guarded.upstream.asked) == sent
    guarded.upstream.problem = None
    guarded.now += FIRST_PAUSE_SECONDS
    await guarded.call()
    await guarded.call()


async def test_errors_of_the_upstreams_own_show_that_it_works() -> None:
    guarded = Guarded()
    for _ in range(3):
        guarded.upstream.problem = unreachable()
        await guarded.fail(FAILURES - 1)
        guarded.upstream.problem = UpstreamError("bugs", -32602, "no")
        with pytest.raises(UpstreamError):
            await guarded.call()


async def test_requests_that_the_upstream_refuses_by_themselves_take_it_from_nobody() -> None:
    guarded = Guarded()
    guarded.upstream.problem = UpstreamFailure("bugs", Reason.MALFORMED, sent=True, of_request=True)
    await guarded.fail(2 * FAILURES)
    guarded.upstream.problem = None
    await guarded.call()


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


async def test_while_the_breaker_is_open_no_request_takes_a_place() -> None:
    guarded = Guarded(places=1)
    guarded.upstream.problem = unreachable()
    await guarded.fail(FAILURES)
    guarded.now += FIRST_PAUSE_SECONDS
    guarded.upstream.gate.clear()
    probe = asyncio.create_task(guarded.call())
    await asyncio.sleep(0)
    with pytest.raises(UpstreamFailure) as refused:
        await guarded.call()
    assert refused.value.reason is Reason.BREAKER_OPEN
    probe.cancel()
    await asyncio.wait({probe})
    guarded.upstream.problem = None
    guarded.upstream.gate.set()
    await guarded.call()
