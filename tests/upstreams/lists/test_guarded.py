"""Requests of callers keep to the limits of an upstream."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from gateway.errors import Overloaded
from gateway.sealing.principal import Principal
from gateway.upstreams.breaker import FAILURES, FIRST_PAUSE_SECONDS, Breaker
from gateway.upstreams.bulkhead import Bulkhead
from gateway.upstreams.failing import MAX_KEPT, FailingCalls
from gateway.upstreams.failures import Reason, UpstreamError, UpstreamFailure
from gateway.upstreams.guarded import GuardedClient
from gateway.upstreams.ports import NOBODY, UpstreamCaller
from tests.upstreams.lists.fakes import FakeUpstream, unreachable

ADA, BOB = (UpstreamCaller(Principal("issuer", name, "app")) for name in ("ada", "bob"))


class Guarded:
    """A client with limits. The breaker of it is probed as the upstream answers."""

    def __init__(self, places: int = 4 * FAILURES) -> None:
        self.now = 0.0
        self.upstream = FakeUpstream()
        self.upstream.results["tools/call"] = {"content": []}
        self.opened, self.closed = asyncio.Event(), asyncio.Event()
        self.breaker = Breaker(self._works, self._changed, pause=lambda _seconds: asyncio.sleep(0))
        bulkhead = Bulkhead(places, None, lambda _number: None, wait_seconds=0.01)
        self.client = GuardedClient("bugs", self.upstream, self.breaker, bulkhead)
        self.client._failing = FailingCalls(lambda: self.now)

    async def _works(self) -> bool:
        return self.upstream.problem is None

    def _changed(self, is_open: bool) -> None:
        (self.opened if is_open else self.closed).set()

    async def call(self, requester: UpstreamCaller = NOBODY, tool: str = "any") -> None:
        await self.client.request("tools/call", {"name": tool}, requester=requester, seconds=1, max_bytes=1000)

    async def fail(self, times: int = 1, requester: UpstreamCaller = NOBODY) -> None:
        for _ in range(times):
            with pytest.raises(UpstreamFailure):
                await self.call(requester)

    async def is_refused(self, requester: UpstreamCaller = NOBODY, tool: str = "any") -> bool:
        """Return whether a call is refused, so that the upstream does not get it."""
        sent = len(self.upstream.asked)
        with contextlib.suppress(UpstreamFailure):
            await self.call(requester, tool)
        return len(self.upstream.asked) == sent


@pytest.fixture
def guarded() -> Guarded:
    return Guarded()


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


BAD = [Reason.TIMED_OUT, Reason.CUT, Reason.TOO_LARGE, Reason.MALFORMED, Reason.WRONG_ID, Reason.SERVER_ERROR]


@pytest.mark.parametrize("reason", BAD)
async def test_time_outs_and_bad_answers_stop_their_tool_for_their_caller_alone_and_for_a_while(
    guarded: Guarded, reason: Reason
) -> None:
    guarded.upstream.problem = UpstreamFailure("bugs", reason, sent=True)
    await guarded.fail(FAILURES, ADA)
    assert await guarded.is_refused(ADA)
    guarded.upstream.problem = None
    assert not await guarded.is_refused(BOB)
    assert not await guarded.is_refused(ADA, "another")
    assert await guarded.is_refused(ADA)
    guarded.now += FIRST_PAUSE_SECONDS
    assert not await guarded.is_refused(ADA)


async def test_pauses_grow_while_calls_fail_and_end_when_one_succeeds(guarded: Guarded) -> None:
    problem = UpstreamFailure("bugs", Reason.TIMED_OUT, sent=True)
    guarded.upstream.problem = problem
    await guarded.fail(FAILURES, ADA)
    for pause in (1, 2, 4, 8, 16, 30, 30):
        guarded.now += pause - 0.01
        assert await guarded.is_refused(ADA)
        guarded.now += 0.01
        assert not await guarded.is_refused(ADA)
    guarded.upstream.problem = None
    guarded.now += 30
    await guarded.call(ADA)
    guarded.upstream.problem = problem
    await guarded.fail(FAILURES - 1, ADA)
    assert not await guarded.is_refused(ADA)


async def test_calls_that_fail_together_pause_their_tool_as_one(guarded: Guarded) -> None:
    guarded.upstream.problem = UpstreamFailure("bugs", Reason.CUT, sent=True)
    guarded.upstream.gate.clear()
    calls = [asyncio.create_task(guarded.call(ADA)) for _ in range(3 * FAILURES)]
    await asyncio.sleep(0)
    guarded.upstream.gate.set()
    await asyncio.wait(calls)
    assert all(call.exception() for call in calls)
    guarded.now += FIRST_PAUSE_SECONDS
    assert not await guarded.is_refused(ADA)


@pytest.mark.parametrize("reason", [Reason.UNAUTHORIZED, Reason.FORBIDDEN, Reason.CREDENTIALS, Reason.BUSY])
async def test_refusals_pause_nothing(guarded: Guarded, reason: Reason) -> None:
    guarded.upstream.problem = UpstreamFailure("bugs", reason, sent=False)
    await guarded.fail(2 * FAILURES, ADA)
    assert not await guarded.is_refused(ADA)


async def test_names_that_fail_take_bounded_memory(guarded: Guarded) -> None:
    guarded.upstream.problem = UpstreamFailure("bugs", Reason.CUT, sent=True)
    for number in range(2 * MAX_KEPT):
        assert not await guarded.is_refused(ADA, f"t{number}")
    assert len(guarded.client._failing.rows) == MAX_KEPT


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
