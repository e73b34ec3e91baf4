"""Changes that an upstream announces are noticed once, and none is missed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import pytest

from gateway.upstreams.failures import Reason, UpstreamError, UpstreamFailure
from gateway.upstreams.lists import subscriptions
from gateway.upstreams.lists.listing import Discovered
from gateway.upstreams.lists.subscriptions import MAX_TRIALS, MAX_URIS, ChangeStream
from gateway.upstreams.ports import Changes

Notices: TypeAlias = "asyncio.Queue[tuple[str, dict[str, Any]] | None]"

ALL = Discovered({"tools": {"listChanged": True}, "resources": {"subscribe": True}})


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "FIRST_RETRY_SECONDS", 0.001)
    monkeypatch.setattr(subscriptions, "LONGEST_RETRY_SECONDS", 0.004)
    monkeypatch.setattr(subscriptions, "GATHER_SECONDS", 0.0)


class Upstream:
    """The other end of the streams: records which were opened, and sends what tests want."""

    def __init__(self) -> None:
        self.filters: list[dict[str, Any]] = []
        self.open: list[Notices] = []
        self.streams: list[tuple[dict[str, Any], Notices]] = []
        self.most_open = 0
        self.refusals = 0
        self.refused: set[str] = set()
        self.most = MAX_URIS
        self.refusals_counted = 0
        self.lost_after_refusal = 0
        self.changing: str | None = None
        self.seconds_under_way = 0.0
        self.unheard = 0
        self.moved = asyncio.Event()
        self.events: asyncio.Queue[str] = asyncio.Queue()
        self.subscriptions = ChangeStream(
            "bugs", self.listen, lambda: self.events.put_nowait("lists"), self.events.put_nowait
        )

    @contextlib.asynccontextmanager
    async def listen(self, wanted: dict[str, Any]) -> AsyncIterator[Changes]:
        self.change()
        if self.refusals:
            self.refusals -= 1
            raise UpstreamFailure("bugs", Reason.UNREACHABLE, sent=False)
        if self.refusals_counted and self.lost_after_refusal:
            self.lost_after_refusal -= 1
            raise UpstreamFailure("bugs", Reason.UNREACHABLE, sent=False)
        uris = wanted.get("resourceSubscriptions", ())
        if not self.refused.isdisjoint(uris) or len(uris) > self.most:
            self.refusals_counted += 1
            self.moved.set()
            raise UpstreamError("bugs", -32602, "Unknown resource")
        queue: Notices = asyncio.Queue()

        async def notices() -> Changes:
            while (notice := await queue.get()) is not None:
                yield notice

        self.filters.append(wanted)
        self.open.append(queue)
        self.streams.append((wanted, queue))
        self.most_open = max(self.most_open, len(self.open))
        self.moved.set()
        try:
            yield notices()
        finally:
            self.open.remove(queue)
            self.moved.set()

    def change(self) -> None:
        """Announce a change of the resource `changing`, on the oldest stream that follows it, once one did."""
        following = [
            queue for wanted, queue in self.streams if self.changing in wanted.get("resourceSubscriptions", ())
        ]
        if following:
            still_open = [queue for queue in following if queue in self.open]
            self.unheard += not still_open
            for queue in still_open[:1]:
                notice = ("notifications/resources/updated", {"uri": self.changing})
                asyncio.get_running_loop().call_later(self.seconds_under_way, queue.put_nowait, notice)

    async def opened(self, wanted: dict[str, Any]) -> None:
        """Wait until the only stream is one with this filter."""
        async with asyncio.timeout(5):
            while not (self.filters and self.filters[-1] == wanted and len(self.open) == 1):
                self.moved.clear()
                await self.moved.wait()

    async def refused_often(self, times: int) -> None:
        """Wait until so many streams have been refused."""
        async with asyncio.timeout(5):
            while self.refusals_counted < times:
                self.moved.clear()
                await self.moved.wait()

    async def event(self) -> str:
        async with asyncio.timeout(5):
            return await self.events.get()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.subscriptions.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})
        assert not self.open


@pytest.fixture
def upstream() -> Upstream:
    return Upstream()


async def test_a_list_that_changes_is_noticed(upstream: Upstream) -> None:
    upstream.subscriptions.discovered(ALL)
    async with upstream.running():
        await upstream.opened({"toolsListChanged": True})
        upstream.open[0].put_nowait(("notifications/tools/list_changed", {}))
        assert await upstream.event() == "lists"


async def test_a_resource_that_an_upstream_refuses_costs_only_itself(upstream: Upstream) -> None:
    upstream.refused = {"memo://bad", "memo://worse"}
    good = [f"memo://{number:02}" for number in range(20)]
    for uri in ("memo://bad", *good, "memo://worse"):
        upstream.subscriptions.watch(uri, None)
    upstream.subscriptions.discovered(ALL)
    async with upstream.running():
        await upstream.opened({"toolsListChanged": True, "resourceSubscriptions": good})
        upstream.open[0].put_nowait(("notifications/resources/updated", {"uri": good[0]}))
        assert await upstream.event() == good[0]


async def test_resources_that_one_caller_names_and_an_upstream_refuses_cost_another_caller_none(
    upstream: Upstream,
) -> None:
    invented = [f"memo://!{number}" for number in range(MAX_URIS // 2)]
    upstream.refused = set(invented)
    upstream.subscriptions.watch("memo://a", "alice")
    upstream.subscriptions.discovered(ALL)
    async with upstream.running():
        await upstream.opened({"toolsListChanged": True, "resourceSubscriptions": ["memo://a"]})
        for uri in invented:
            upstream.subscriptions.watch(uri, "mallory")
        await upstream.refused_often(MAX_TRIALS // 2)
        upstream.subscriptions.watch("memo://b", "alice")
        await upstream.opened({"toolsListChanged": True, "resourceSubscriptions": ["memo://a", "memo://b"]})
    assert upstream.refusals_counted <= 3 * MAX_TRIALS


async def test_an_upstream_that_follows_few_resources_follows_as_many_as_it_can_of_each_caller(
    upstream: Upstream,
) -> None:
    upstream.most = 10
    for uri in (f"memo://!{number}" for number in range(100)):
        upstream.subscriptions.watch(uri, "mallory")
    for uri in ("memo://a", "memo://b"):
        upstream.subscriptions.watch(uri, "alice")
    upstream.subscriptions.discovered(ALL)
    async with upstream.running():
        async with asyncio.timeout(5):
            while not (upstream.filters and "toolsListChanged" in upstream.filters[-1]):
                upstream.moved.clear()
                await upstream.moved.wait()
        followed = upstream.filters[-1]["resourceSubscriptions"]
    assert {"memo://a", "memo://b"} < set(followed)
    assert len(followed) > upstream.most / 2


async def test_a_resource_that_was_refused_is_tried_again_and_its_changes_are_made_up_for(upstream: Upstream) -> None:
    upstream.refused = {"memo://later"}
    upstream.subscriptions.watch("memo://later", None)
    upstream.subscriptions.discovered(ALL)
    async with upstream.running():
        await upstream.opened({"toolsListChanged": True})
        upstream.refused = set()
        await upstream.opened({"toolsListChanged": True, "resourceSubscriptions": ["memo://later"]})
        assert {await upstream.event(), await upstream.event()} == {"lists", "memo://later"}


async def test_nothing_is_sorted_out_while_an_upstream_cannot_be_reached(upstream: Upstream) -> None:
    upstream.refused = {"memo://bad"}
    for uri in ("memo://bad", "memo://good"):
        upstream.subscriptions.watch(uri, None)
    upstream.lost_after_refusal = 3
    upstream.subscriptions.discovered(ALL)
    async with upstream.running():
        await upstream.opened({"toolsListChanged": True, "resourceSubscriptions": ["memo://good"]})
    assert upstream.lost_after_refusal == 0


async def test_an_upstream_that_announces_nothing_is_not_asked(upstream: Upstream) -> None:
    async with upstream.running():
        upstream.subscriptions.discovered(Discovered({"tools": {}}))
        upstream.subscriptions.watch("memo://a", None)
        await asyncio.sleep(0.01)
    assert not upstream.filters


async def test_a_resource_is_subscribed_to_as_long_as_anybody_watches_it(upstream: Upstream) -> None:
    upstream.subscriptions.discovered(ALL)
    async with upstream.running():
        await upstream.opened({"toolsListChanged": True})
        upstream.subscriptions.watch("memo://a", None)
        upstream.subscriptions.watch("memo://a", None)
        watching = {"toolsListChanged": True, "resourceSubscriptions": ["memo://a"]}
        await upstream.opened(watching)
        upstream.subscriptions.unwatch("memo://a", None)
        upstream.open[0].put_nowait(("notifications/resources/updated", {"uri": "memo://a"}))
        assert await upstream.event() == "memo://a"
        upstream.subscriptions.unwatch("memo://a", None)
        await upstream.opened({"toolsListChanged": True})
    assert [each for each in upstream.filters if each == watching] == [watching]


async def test_a_new_stream_opens_before_the_old_one_ends(upstream: Upstream) -> None:
    upstream.subscriptions.discovered(ALL)
    async with upstream.running():
        await upstream.opened({"toolsListChanged": True})
        upstream.subscriptions.watch("memo://a", None)
        await upstream.opened({"toolsListChanged": True, "resourceSubscriptions": ["memo://a"]})
    assert upstream.most_open == 2
    assert upstream.events.empty()


async def test_a_change_that_is_under_way_on_the_old_stream_is_noticed_before_it_ends(upstream: Upstream) -> None:
    upstream.subscriptions.discovered(ALL)
    upstream.subscriptions.watch("memo://a", None)
    async with upstream.running():
        await upstream.opened({"toolsListChanged": True, "resourceSubscriptions": ["memo://a"]})
        upstream.changing, upstream.seconds_under_way = "memo://a", 0.01
        upstream.subscriptions.watch("memo://b", None)
        await upstream.opened({"toolsListChanged": True, "resourceSubscriptions": ["memo://a", "memo://b"]})
        assert upstream.events.get_nowait() == "memo://a"


async def test_a_resource_that_is_accepted_is_followed_while_others_are_tried(upstream: Upstream) -> None:
    upstream.changing = "memo://00"
    upstream.refused = {"memo://bad"}
    good = [f"memo://{number:02}" for number in range(10)]
    for uri in (*good, "memo://bad"):
        upstream.subscriptions.watch(uri, None)
    upstream.subscriptions.discovered(ALL)
    async with upstream.running():
        await upstream.opened({"toolsListChanged": True, "resourceSubscriptions": good})
        assert await upstream.event() == "memo://00"
    assert upstream.refusals_counted > 2
    assert upstream.unheard == 0


async def test_updates_that_nobody_asked_for_reach_nobody(upstream: Upstream) -> None:
    upstream.subscriptions.discovered(ALL)
    async with upstream.running():
        await upstream.opened({"toolsListChanged": True})
        for method, params in (
            ("notifications/resources/updated", {"uri": "memo://other"}),
            ("notifications/resources/updated", {"uri": ["memo://a"]}),
            ("notifications/resources/updated", {}),
            ("notifications/unknown", {}),
            ("notifications/tools/list_changed", {}),
        ):
            upstream.open[0].put_nowait((method, params))
        assert await upstream.event() == "lists"
    assert upstream.events.empty()


async def test_after_a_stream_broke_everything_counts_as_changed(upstream: Upstream) -> None:
    upstream.subscriptions.discovered(ALL)
    upstream.subscriptions.watch("memo://a", None)
    watching = {"toolsListChanged": True, "resourceSubscriptions": ["memo://a"]}
    async with upstream.running():
        await upstream.opened(watching)
        upstream.refusals = 3
        upstream.open[0].put_nowait(None)
        assert {await upstream.event(), await upstream.event()} == {"lists", "memo://a"}
    assert upstream.filters == [watching, watching]
    assert upstream.refusals == 0


async def test_a_first_stream_that_opens_announces_nothing(upstream: Upstream) -> None:
    upstream.subscriptions.discovered(ALL)
    upstream.refusals = 2
    async with upstream.running():
        await upstream.opened({"toolsListChanged": True})
    assert upstream.events.empty()


async def test_a_caller_with_too_many_resources_loses_its_own_and_nobody_elses(upstream: Upstream) -> None:
    upstream.subscriptions.discovered(ALL)
    for number in range(2 * MAX_URIS):
        upstream.subscriptions.watch(f"memo://!{number}", "mallory")
    for uri in ("memo://a", "memo://b"):
        upstream.subscriptions.watch(uri, "alice")
    async with upstream.running():
        async with asyncio.timeout(5):
            while not upstream.filters:
                upstream.moved.clear()
                await upstream.moved.wait()
        wanted = upstream.filters[-1]["resourceSubscriptions"]
        assert {"memo://a", "memo://b"} < set(wanted)
        assert len(wanted) == MAX_URIS


async def test_one_resource_of_two_callers_is_followed_until_both_have_gone(upstream: Upstream) -> None:
    upstream.subscriptions.discovered(ALL)
    watching = {"toolsListChanged": True, "resourceSubscriptions": ["memo://a"]}
    for caller in ("mallory", "alice"):
        upstream.subscriptions.watch("memo://a", caller)
    async with upstream.running():
        await upstream.opened(watching)
        upstream.subscriptions.unwatch("memo://a", "mallory")
        upstream.open[0].put_nowait(("notifications/resources/updated", {"uri": "memo://a"}))
        assert await upstream.event() == "memo://a"
        upstream.subscriptions.unwatch("memo://a", "alice")
        await upstream.opened({"toolsListChanged": True})
