"""One upstream over time: when its lists are read again, and what stays while it is down."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from gateway.upstreams import live
from gateway.upstreams.config.definition import Credentials
from gateway.upstreams.lists import subscriptions
from gateway.upstreams.lists.listing import read_all
from tests.upstreams.lists.fakes import FakeUpstream, Served, definition_of, tool, unreachable, until


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "COALESCE_SECONDS", 0.02)
    monkeypatch.setattr(live, "FIRST_RETRY_SECONDS", 0.002)
    monkeypatch.setattr(live, "LONGEST_RETRY_SECONDS", 0.004)
    monkeypatch.setattr(subscriptions, "GATHER_SECONDS", 0.0)


@pytest.fixture
def upstream() -> FakeUpstream:
    return FakeUpstream("search", "delete")


async def test_lists_are_read_at_the_start_and_the_log_says_what_is_served(
    upstream: FakeUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gateway.upstreams.live")
    served = Served(definition_of(), upstream)
    assert served.live.part.ready is not None
    async with served.running():
        part = await served.next_part()
    assert list(part.tools) == ["bugs__search", "bugs__delete"]
    assert part.ready is None
    assert served.telemetry.entries == {"bugs": 2}
    (line,) = [record for record in caplog.records if record.getMessage() == "lists of an upstream read"]
    assert line.__dict__["entries"] == 2


async def test_listening_takes_no_connection_that_calls_need(upstream: FakeUpstream) -> None:
    served = Served(definition_of(max_connections=live.CONNECTIONS_TO_LISTEN - 1), upstream)
    async with served.running():
        await served.next_part()
        served.live.watch("bugs+memo://a", None)
        await asyncio.sleep(0.02)
        assert not upstream.streams
        served.live.unwatch("bugs+memo://a", None)


async def test_many_announced_changes_are_read_once_and_served_once(
    upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "COALESCE_SECONDS", 0.2)
    served = Served(definition_of(), upstream)
    async with served.running():
        await served.next_part()
        await upstream.listening()
        upstream.lists["tools"] = [tool("search")]
        for _ in range(20):
            upstream.tell("notifications/tools/list_changed")
            await asyncio.sleep(0.001)
        part = await served.next_part()
        assert list(part.tools) == ["bugs__search"]
        await asyncio.sleep(1.5 * live.COALESCE_SECONDS)
    assert upstream.count("tools/list") == 2
    assert served.parts.empty()


async def test_an_announced_change_that_changes_nothing_makes_no_other_part(upstream: FakeUpstream) -> None:
    served = Served(definition_of(), upstream)
    async with served.running():
        await served.next_part()
        await upstream.listening()
        upstream.tell("notifications/prompts/list_changed")
        await until(lambda: upstream.count("tools/list") == 2)
    assert served.parts.empty()


async def test_a_capability_that_is_written_correctly_later_counts_from_then_on(upstream: FakeUpstream) -> None:
    """`1` is not `true`, but Python finds them equal."""
    upstream.about = {**upstream.about, "capabilities": {"tools": {"listChanged": 1}}}
    served = Served(definition_of(), upstream)
    async with served.running():
        await served.next_part()
        upstream.about = {**upstream.about, "capabilities": {"tools": {"listChanged": True}}}
        served.live.refresh_soon()
        await served.next_part()
        await upstream.listening()


async def test_a_bug_costs_one_reading_and_not_the_upstream(
    upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bugs = [RuntimeError("a bug")]

    async def buggy(*given: Any, **named: Any) -> Any:
        if bugs:
            raise bugs.pop()
        return await read_all(*given, **named)

    monkeypatch.setattr(live, "read_all", buggy)
    served = Served(definition_of(), upstream)
    async with served.running():
        assert list((await served.next_part()).tools) == ["bugs__search", "bugs__delete"]
    assert served.telemetry.refreshes[False] == 1
    (line,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert line.exc_info is not None


async def test_an_upstream_that_is_down_keeps_its_last_list_and_comes_back(
    upstream: FakeUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    served = Served(definition_of(), upstream)
    async with served.running():
        await served.next_part()
        upstream.problem = unreachable()
        served.live.refresh_soon()
        await until(lambda: served.telemetry.refreshes[False] >= 3)
        assert list(served.live.part.tools) == ["bugs__search", "bugs__delete"]
        upstream.lists["tools"] = [tool("search")]
        upstream.problem = None
        assert list((await served.next_part()).tools) == ["bugs__search"]
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1, "one problem is logged once"


async def test_the_first_list_is_waited_for_only_while_the_first_attempt_runs(upstream: FakeUpstream) -> None:
    upstream.problem = unreachable()
    upstream.gate.clear()
    served = Served(definition_of(), upstream)
    ready = served.live.part.ready
    assert ready is not None
    async with served.running():
        waiting = asyncio.create_task(ready.wait())
        await asyncio.sleep(0.01)
        assert not waiting.done()
        upstream.gate.set()
        async with asyncio.timeout(5):
            await waiting
        assert served.live.part.ready is not None, "it was never listed"


async def test_whoever_waits_for_the_first_list_finds_it_served(upstream: FakeUpstream) -> None:
    served = Served(definition_of(), upstream)
    ready = served.live.part.ready
    assert ready is not None
    async with served.running():
        await ready.wait()
        assert not served.parts.empty()


@pytest.mark.parametrize(
    ("ttl_ms", "listens", "shortest", "longest"),
    [
        (None, False, 40, 60),
        (None, True, 240, 300),
        (1, True, 10, 10),
        (45_000, True, 45, 45),
        (10**9, False, 300, 300),
    ],
)
async def test_lists_are_read_again_when_they_expire_but_neither_too_often_nor_too_rarely(
    upstream: FakeUpstream, ttl_ms: int | None, listens: bool, shortest: float, longest: float
) -> None:
    upstream.results["tools/list"] = {"tools": [], **({} if ttl_ms is None else {"ttlMs": ttl_ms})}
    if not listens:
        upstream.about["capabilities"] = {"tools": {}}
    served = Served(definition_of(), upstream)
    async with served.running():
        await served.next_part()
        if listens:
            await until(lambda: served.live.is_listening)
        assert shortest <= served.live._pause() <= longest


async def test_a_resource_that_changes_is_announced_under_its_exposed_uri(upstream: FakeUpstream) -> None:
    served = Served(definition_of(), upstream)
    async with served.running():
        await served.next_part()
        served.live.watch("bugs+memo://a", None)
        await upstream.listening(lambda wanted: wanted.get("resourceSubscriptions") == ["memo://a"])
        upstream.tell("notifications/resources/updated", uri="memo://a")
        async with asyncio.timeout(5):
            assert await served.announced.get() == "bugs+memo://a"
        served.live.unwatch("bugs+memo://a", None)
        await upstream.listening(lambda wanted: "resourceSubscriptions" not in wanted)


async def test_connections_are_closed_at_the_end(upstream: FakeUpstream) -> None:
    served = Served(definition_of(), upstream)
    async with served.running():
        await served.next_part()
    assert upstream.is_closed
    assert not upstream.streams


async def test_an_upstream_that_knows_callers_only_is_not_asked_by_the_gateway_itself(upstream: FakeUpstream) -> None:
    exchanged = definition_of(scope="caller", credentials=Credentials("token_exchange", audience="bugs"))
    served = Served(exchanged, upstream)
    async with served.running():
        await asyncio.sleep(0.01)
    assert not upstream.asked
    assert served.live.part.ready is None
    assert served.live.part.lists is not None


async def test_changes_of_lists_that_depend_on_the_caller_are_announced(upstream: FakeUpstream) -> None:
    served = Served(definition_of(forward_headers=("x-token",)), upstream)
    async with served.running():
        first = await served.next_part()
        await upstream.listening()
        upstream.tell("notifications/tools/list_changed")
        second = await served.next_part()
    assert first.revisions["tools"] != second.revisions["tools"]
    assert upstream.count("tools/list") == 0, "only callers read it"


async def test_the_gateway_declares_everything_it_relays_when_it_reads_lists(upstream: FakeUpstream) -> None:
    served = Served(definition_of(), upstream)
    async with served.running():
        await served.next_part()
    declared: list[dict[str, Any]] = [dict(caller.capabilities) for _, caller in upstream.asked]
    assert all(set(each) == {"elicitation", "sampling", "roots"} for each in declared)
