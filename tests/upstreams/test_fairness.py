"""One caller takes an upstream from nobody, whatever its calls do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from gateway.upstreams.breaker import FAILURES
from gateway.upstreams.lists.subscriptions import MAX_URIS
from loadtest.cluster import wait_until
from tests.upstreams.servers.hostile import Hostile, huge_body, silence
from tests.upstreams.servers.plain_http import Exchange, PlainServer
from tests.upstreams.servers.recording import Recording, Refusal
from tests.upstreams.site import Site, User, entry

pytestmark = pytest.mark.slow

HARMFUL = ("silence", "failed", "huge_body", "wrong_id", "cut", "not_json")
PLACES = 8
GOOD_CALLS = 60
LIST_SECONDS = 2.0
SLACK_SECONDS = 1.0
"""A busy machine may add as much to a promised time."""


async def harm(user: User, tool: str, seconds: float) -> None:
    """Call a tool again and again; leave each call after a while."""
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await user.call(f"bad__{tool}")


@contextlib.asynccontextmanager
async def beside(*works: Callable[[], Awaitable[object]], at_once: int = 1) -> AsyncIterator[None]:
    """Do each of these again and again, so many times at once, while the context is open."""

    async def repeat(work: Callable[[], Awaitable[object]]) -> None:
        while True:
            await work()

    tasks = [asyncio.create_task(repeat(work)) for work in works * at_once]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(end, asyncio.CancelledError) for end in ends), ends


@pytest.mark.parametrize("seconds", [0.2, 20], ids=["aborted", "not aborted"])
async def test_failing_slow_huge_and_aborted_calls_of_one_caller_cost_another_one_none_of_its_own(
    tmp_path: Path, seconds: float
) -> None:
    with Hostile() as server:
        limits = {"timeout_seconds": 1.0, "max_result_bytes": 1 << 20, "max_in_flight": PLACES}
        with Site(tmp_path, {"bad": entry(server.url, **limits)}, None, names=["r1"]) as site:
            site.wait_listed("bad")
            async with site.user("mallory") as mallory, site.user("alice") as alice:
                harming = [
                    asyncio.create_task(harm(mallory, HARMFUL[number % len(HARMFUL)], seconds))
                    for number in range(3 * PLACES)
                ]
                try:
                    texts = [(await alice.call("bad__echo")).text for _ in range(GOOD_CALLS)]
                finally:
                    for task in harming:
                        task.cancel()
                    await asyncio.wait(harming)
            assert texts == ["fine"] * GOOD_CALLS
            assert site.metric("gateway_upstream_breaker_open", upstream="bad") == 0


async def test_a_tool_that_fails_again_and_again_for_one_caller_is_refused_for_nobody_else(tmp_path: Path) -> None:
    with Hostile() as server, Site(tmp_path, {"bad": entry(server.url)}, names=["r1"]) as site:
        site.wait_listed("bad")
        async with site.user("mallory") as mallory, site.user("alice") as alice:
            for _ in range(FAILURES):
                assert "may have acted" in (await mallory.call("bad__not_json")).text
            asked = len(server.asked)
            assert "Nothing was sent" in (await mallory.call("bad__not_json")).text
            assert server.asked[asked:] == []
            assert "may have acted" in (await alice.call("bad__not_json")).text
            assert (await mallory.call("bad__echo")).text == "fine"
        assert site.metric("gateway_upstream_failures_total", upstream="bad", reason="breaker_open") == 1
        assert site.metric("gateway_upstream_breaker_open", upstream="bad") == 0


class Tenants:
    """Lists other tools for each tenant, whose name begins with what its lists are like. All lists stay valid briefly.

    Attributes:
        lists: how often each tenant's list was asked for.
        is_silent: whether no list is answered any more.
    """

    def __init__(self) -> None:
        self.lists: Counter[str] = Counter()
        self.is_silent = False

    async def answer(self, exchange: Exchange) -> None:
        message = json.loads(exchange.body)
        told: dict[str, Any] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        if message["method"] == "server/discover":
            told |= {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        else:
            tenant = exchange.header("x-tenant") or ""
            self.lists[tenant] += 1
            told |= {"tools": [{"name": f"of_{tenant}", "inputSchema": {"type": "object"}}]}
            match "silent" if self.is_silent else tenant.partition("-")[0]:
                case "silent":
                    await silence(exchange, message["id"])
                case "failing":
                    return exchange.reply(500)
                case "huge":
                    return await huge_body(exchange, message["id"])
                case "cut":
                    return exchange.cut()
                case "endless":
                    await asyncio.sleep(0.2)
                    told["nextCursor"] = str(self.lists[tenant])
        return exchange.json({"jsonrpc": "2.0", "id": message["id"], "result": told})


@pytest.fixture
def tenants() -> Tenants:
    return Tenants()


@pytest.fixture
def site(tenants: Tenants, tmp_path: Path) -> Iterator[Site]:
    with Recording(["echo"]) as good, PlainServer(tenants.answer) as server:
        limits = {"max_result_bytes": 1 << 20, "max_in_flight": PLACES}
        own = entry(server.url, forward_headers=["X-Tenant"], **limits)
        with Site(tmp_path, {"good": entry(good.url), "own": own}, names=["r1"]) as site:
            site.wait_listed("good")
            yield site


async def listed(user: User, tenant: str) -> list[str]:
    """Return the names that a tenant sees. They must come in time."""
    began = time.monotonic()
    found = (await user.send("tools/list", None, **{"x-tenant": tenant})).result["tools"]
    assert time.monotonic() - began < LIST_SECONDS + SLACK_SECONDS
    return [tool["name"] for tool in found]


@pytest.mark.parametrize("seconds", [0.2, 20], ids=["aborted", "not aborted"])
async def test_failing_slow_huge_and_endless_lists_of_one_caller_cost_another_one_none_of_its_own(
    site: Site, seconds: float
) -> None:
    numbers = count()

    async def harm() -> None:
        for kind in ("failing", "huge", "cut", "endless", "silent"):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await mallory.send("tools/list", None, **{"x-tenant": f"{kind}-{next(numbers)}"})

    async with site.user("mallory") as mallory, site.user("alice") as alice, beside(harm, at_once=3 * PLACES):
        for number in range(GOOD_CALLS):
            assert await listed(alice, f"alice-{number}") == ["good__echo", f"own__of_alice-{number}"]


async def test_a_list_that_was_never_read_costs_a_page_two_seconds_and_the_entries_of_that_upstream(site: Site) -> None:
    async with site.user() as ada:
        assert await listed(ada, "silent-1") == ["good__echo"]


async def test_a_list_that_cannot_be_read_again_in_time_stays_in_use(site: Site, tenants: Tenants) -> None:
    async with site.user() as ada:
        before = await listed(ada, "ada")
        tenants.is_silent = True
        async with asyncio.timeout(30):
            while tenants.lists["ada"] == 1:  # it is read again once it has expired
                assert await listed(ada, "ada") == before
                await asyncio.sleep(0.05)
        assert await listed(ada, "ada") == before == ["good__echo", "own__of_ada"]


def is_followed(server: Recording, uri: str) -> bool:
    return any(uri in each.wanted.get("resourceSubscriptions", ()) for each in list(server.listeners))


class Refusing(Recording):
    """Refuses a whole stream for each resource whose name begins with `!`."""

    async def _listen(self, exchange: Exchange, request_id: Any, params: Mapping[str, Any]) -> None:
        if any("!" in uri for uri in params["notifications"].get("resourceSubscriptions", ())):
            raise Refusal(-32602, "Unknown resource")
        await super()._listen(exchange, request_id, params)


@pytest.mark.parametrize("kind", [Recording, Refusing])
async def test_streams_of_one_caller_hide_no_change_from_another_one(tmp_path: Path, kind: type[Recording]) -> None:
    numbers = count()
    with kind() as server, Site(tmp_path, {"up": entry(server.url)}, names=["r1"]) as site:
        site.wait_listed("up")

        async def harm() -> None:
            async with AsyncExitStack() as stack:
                for _ in range(MAX_URIS // 100 + 2):
                    invented = [f"up+item://!{next(numbers)}" for _ in range(100)]
                    await stack.enter_async_context(mallory.listening(resourceSubscriptions=invented))

        async with site.user("mallory") as mallory, site.user("alice") as alice, beside(harm, at_once=2):
            for number in range(GOOD_CALLS // 2):
                own = f"item://{number}"
                async with alice.listening(resourceSubscriptions=[f"up+{own}"], toolsListChanged=True) as heard:
                    await asyncio.to_thread(wait_until, partial(is_followed, server, own), f"a stream with {own}")
                    server.update(own)
                    (told,) = await heard.wait_for("notifications/resources/updated")
                    assert told["params"]["uri"] == f"up+{own}"
