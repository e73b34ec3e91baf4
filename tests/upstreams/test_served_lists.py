"""Lists of several upstreams: complete, in a stable order, the same at each replica, and announced when they differ."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from loadtest.cluster import wait_until
from tests.upstreams.conftest import settled
from tests.upstreams.servers.recording import Recording
from tests.upstreams.site import Site, entry

PAGE = 37
COUNT = 250
UPSTREAMS = ("first", "second", "third")
LARGEST_OWN = 4096


def tools_of(upstream: str, count: int = COUNT) -> list[str]:
    """Return names whose order is not that of the alphabet."""
    return [f"{upstream}_{number * 7919 % count:04d}" for number in range(count)]


@pytest.fixture(scope="module")
def many() -> Iterator[dict[str, Recording]]:
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(Recording(tools_of(name), page=PAGE, prompts={}, resources={}, templates={}))
            for name in UPSTREAMS
        }


@pytest.fixture(scope="module")
def many_site(many: dict[str, Recording], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    settings = {"GATEWAY_TOOLS": "tests.upstreams.local_tools", "GATEWAY_MAX_RESULT_BYTES": str(LARGEST_OWN)}
    upstreams = {name: entry(upstream.url) for name, upstream in many.items()}
    with Site(tmp_path_factory.mktemp("lists"), upstreams, None, settings) as site:
        site.wait_listed()
        yield site


@pytest.fixture
def restored(many: dict[str, Recording], many_site: Site) -> Iterator[Site]:
    """The site; afterwards every upstream lists again what it listed before."""
    yield many_site
    for name, upstream in many.items():
        if [*upstream.tools] != tools_of(name):
            upstream.serve(tools_of(name))
    wait_until(lambda: all(names_at(many_site, url) == expected() for url in many_site.urls), "the lists as before")


def expected(*changed: tuple[str, list[str]]) -> list[str]:
    """Return the union: local tools first, then each upstream in the order of the file."""
    lists = {name: tools_of(name) for name in UPSTREAMS} | dict(changed)
    return ["local", *(f"{name}__{tool}" for name in UPSTREAMS for tool in lists[name])]


def names_at(site: Site, *urls: str) -> list[str]:
    async def names() -> list[str]:
        async with site.user(urls=urls) as user:
            return await user.names()

    return asyncio.run(names())


async def test_the_union_is_complete_and_in_order_and_each_page_comes_from_the_other_replica(many_site: Site) -> None:
    async with many_site.user() as user:
        assert await user.names() == expected()
        assert [reply.url for reply in user.replies] == [many_site.urls[n % 2] for n in range(len(user.replies))]
        assert len(user.replies) > 3
        lists = [reply.result for reply in user.replies]
    assert all(page["ttlMs"] <= 60_000 for page in lists)


async def test_the_limit_of_own_results_is_not_that_of_an_upstream(many_site: Site) -> None:
    large = {"text": "a" * 2 * LARGEST_OWN}
    async with many_site.user() as user:
        assert (await user.call(expected()[1], large)).text == large["text"]
        assert f"the limit is {LARGEST_OWN} bytes" in (await user.call("local", large)).text


async def test_both_replicas_give_the_same_pages(many_site: Site) -> None:
    pages = []
    for url in many_site.urls:
        async with many_site.user(urls=[url]) as user:
            await user.names()
            pages.append([reply.result for reply in user.replies])
    assert pages[0] == pages[1]


async def test_a_change_reaches_each_listening_client_once(restored: Site, many: dict[str, Recording]) -> None:
    changed = ["brand_new", *tools_of("second")[5:]]
    async with (
        restored.user() as user,
        user.listening(toolsListChanged=True) as one,
        user.listening(toolsListChanged=True) as two,
    ):
        await asyncio.to_thread(many["second"].serve, changed)
        many["second"].announce("tools", times=5)
        for heard in (one, two):
            await heard.wait_for("notifications/tools/list_changed")
        assert await user.names() == expected(("second", changed))
        await settled(1.5)  # longer than changes are collected for
        assert [len(heard.of("notifications/tools/list_changed")) for heard in (one, two)] == [1, 1]


async def test_a_change_that_changes_nothing_is_not_announced(many_site: Site, many: dict[str, Recording]) -> None:
    before = many["first"].count("tools/list")
    async with many_site.user() as user, user.listening(toolsListChanged=True) as heard:
        many["first"].announce("tools", times=3)
        pages = -(-COUNT // PAGE)
        await asyncio.to_thread(
            wait_until, lambda: many["first"].count("tools/list") >= before + 2 * pages, "a refresh of each replica"
        )
        await settled()
        assert heard.of("notifications/tools/list_changed") == []
    assert many["first"].count("tools/list") == before + 2 * pages, "several announcements make one refresh"


async def test_paging_goes_on_at_the_next_entry_when_the_last_one_is_gone(
    restored: Site, many: dict[str, Recording]
) -> None:
    async with restored.user() as user:
        first = (await user.send("tools/list")).result
        upstream, last = first["tools"][-1]["name"].split("__")
        changed = [name for name in tools_of(upstream) if name != last]
        await asyncio.to_thread(many[upstream].serve, changed)
        await asyncio.to_thread(
            wait_until, lambda: f"{upstream}__{last}" not in names_at(restored, *restored.urls), "the change"
        )
        await settled(0.1)
        rest = []
        params = {"cursor": first["nextCursor"]}
        while True:
            page = (await user.send("tools/list", params)).result
            rest += [tool["name"] for tool in page["tools"]]
            if "nextCursor" not in page:
                break
            params = {"cursor": page["nextCursor"]}
    names = [tool["name"] for tool in first["tools"]] + rest
    assert names == expected()


async def test_a_refresh_that_fails_keeps_the_last_good_list(restored: Site, many: dict[str, Recording]) -> None:
    third = many["third"]
    failed = restored.metric("gateway_upstream_list_refreshes_total", upstream="third", result="failed")
    third.authorize = lambda exchange: 500 if b"tools/list" in exchange.body else None
    try:
        third.announce("tools")
        await asyncio.to_thread(
            wait_until,
            lambda: (
                restored.metric("gateway_upstream_list_refreshes_total", upstream="third", result="failed")
                >= failed + 2
            ),
            "a refresh that fails",
        )
        async with restored.user() as user:
            assert await user.names() == expected()
            assert (await user.call("third__third_0000", {"text": "still served"})).text == "still served"
    finally:
        third.authorize = lambda _exchange: None


async def test_a_list_does_not_wait_for_an_upstream_that_is_silent(tmp_path_factory: pytest.TempPathFactory) -> None:
    """It answers within seconds without it, says that this is soon outdated, and readiness does not depend on it."""
    with Recording(["echo"]) as quick, Recording(["echo"]) as silent:
        silent.hold()
        upstreams = {"quick": entry(quick.url), "silent": entry(silent.url)}
        with Site(tmp_path_factory.mktemp("silent"), upstreams, names=["r1"]) as site:
            async with site.user() as user:
                async with asyncio.timeout(8):
                    page = (await user.send("tools/list")).result
                assert [tool["name"] for tool in page["tools"]] == ["quick__echo"]
                assert page["ttlMs"] == 1000
                assert (await user.call("quick__echo", {"text": "served"})).text == "served"
                silent.release()
                await asyncio.to_thread(site.wait_listed, "silent")
                assert await user.names() == ["quick__echo", "silent__echo"]


async def test_a_new_file_replaces_only_the_upstreams_that_changed(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("watched")
    with (
        Recording() as kept,
        Recording(["echo"]) as added,
        Site(directory, {"kept": entry(kept.url)}, names=["r1"]) as site,
    ):
        site.wait_listed()
        async with site.user() as user, user.listening(toolsListChanged=True) as heard:
            call = asyncio.create_task(user.call("kept__slow"))
            await asyncio.to_thread(kept.wait_begun)
            site.configure({"kept": entry(kept.url), "added": entry(added.url)})
            await heard.wait_for("notifications/tools/list_changed")
            assert (await user.names())[-1] == "added__echo"
            await asyncio.to_thread(kept.open)
            assert (await call).text == "finally"
            site.file.write_text("{broken")
            await asyncio.to_thread(
                wait_until, lambda: str(site.file) in _warnings(site), "a line about the broken file"
            )
            assert (await user.call("added__echo", {"text": "still served"})).text == "still served"
    assert kept.count("server/discover") == 1


def _warnings(site: Site) -> str:
    lines = [line for line in site.replicas[0].log_lines() if line.get("level") in {"warning", "error"}]
    return json.dumps(lines)


async def test_resources_that_change_are_announced_to_those_who_subscribed(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with Recording() as upstream, Site(tmp_path_factory.mktemp("updates"), {"rec": entry(upstream.url)}) as site:
        site.wait_listed()
        async with site.user() as user:
            wanted = ["rec+note://today"]
            async with (
                user.listening(resourceSubscriptions=wanted) as one,
                user.listening(resourceSubscriptions=wanted) as two,
                user.listening(resourceSubscriptions=["rec+note://asking"]) as other,
            ):
                await asyncio.to_thread(
                    wait_until,
                    # A replica that opens its stream again has two for a moment.
                    lambda: _subscribed(upstream, "note://today") == len(upstream.listeners) == 2,
                    "a subscription of each replica",
                )
                upstream.update("note://today")
                for heard in (one, two):
                    (told,) = await heard.wait_for("notifications/resources/updated")
                    assert told["params"]["uri"] == "rec+note://today"
                await settled()
                assert other.of("notifications/resources/updated") == []
            await asyncio.to_thread(
                wait_until, lambda: _subscribed(upstream, "note://today") == 0, "the end of the subscriptions"
            )


def _subscribed(upstream: Recording, uri: str) -> int:
    return sum(uri in listener.wanted.get("resourceSubscriptions", ()) for listener in list(upstream.listeners))
