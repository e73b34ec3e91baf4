"""The lists of an upstream are read within limits, however it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.upstream.deviations import Deviation
from gateway.upstreams.failures import Reason, UpstreamError, UpstreamFailure
from gateway.upstreams.lists import listing
from gateway.upstreams.lists.listing import Discovered, discover, read_all, read_list

RELEASED = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {"listChanged": True}}}


def pages(*sizes: int, first: int = 0) -> list[dict[str, Any]]:
    """Return pages of tools with these sizes, linked by cursors."""
    made, number = [], first
    for position, size in enumerate(sizes):
        entries = [{"name": f"tool{number + offset}", "inputSchema": {}} for offset in range(size)]
        number += size
        more = {"nextCursor": f"page{position + 1}"} if position + 1 < len(sizes) else {}
        made.append({"tools": entries, **more})
    return made


def answering(made: list[dict[str, Any]]) -> listing.Ask:
    async def ask(_method: str, params: dict[str, Any]) -> Mapping[str, Any]:
        return made[int(params.get("cursor", "page0").removeprefix("page"))]

    return ask


async def reason_of(made: list[dict[str, Any]]) -> Reason:
    with pytest.raises(UpstreamFailure) as refused:
        await read_list("bugs", answering(made), "tools")
    return refused.value.reason


def always(answer: Callable[[str], Mapping[str, Any]]) -> listing.Ask:
    async def ask(method: str, _params: dict[str, Any]) -> Mapping[str, Any]:
        return answer(method)

    return ask


async def test_every_page_is_read_in_the_order_of_the_upstream() -> None:
    entries, _, _ = await read_list("bugs", answering(pages(3, 2, 4)), "tools")
    assert [entry["name"] for entry in entries] == [f"tool{number}" for number in range(9)]


async def test_of_two_entries_with_one_name_the_first_one_counts() -> None:
    made = pages(2)
    made[0]["tools"].append({"name": "tool0", "description": "later"})
    listed = await read_all("bugs", answering(made), Discovered({"tools": {}}))
    assert [entry["name"] for entry in listed.lists["tools"]] == ["tool0", "tool1"]
    assert "description" not in listed.lists["tools"][0]
    assert listed.repeated == 1


async def test_pages_that_never_end_are_read_up_to_a_limit() -> None:
    healed: list[Deviation] = []
    made = pages(*[1] * (listing.MAX_PAGES + 1))
    entries, _, _ = await read_list("bugs", answering(made), "tools", heal=healed.append)
    assert len(entries) == listing.MAX_PAGES
    assert healed == [Deviation.CURSOR]


async def test_as_many_pages_as_allowed_are_read() -> None:
    entries, _, _ = await read_list("bugs", answering(pages(*[1] * listing.MAX_PAGES)), "tools")
    assert len(entries) == listing.MAX_PAGES


@pytest.mark.parametrize("cursor", ["page1", "", 7, {"a": 1}, "c" * 100_000])
async def test_a_list_keeps_what_was_read_before_a_cursor_that_leads_nowhere(cursor: Any) -> None:
    healed: list[Deviation] = []
    made = pages(1, 1, 1)
    made[2]["nextCursor"] = cursor
    entries, _, _ = await read_list("bugs", answering(made), "tools", heal=healed.append)
    assert len(entries) == 3
    assert healed == [Deviation.CURSOR]


@pytest.mark.parametrize("page", [{}, {"tools": None}])
async def test_a_list_that_is_missing_is_empty(page: dict[str, Any]) -> None:
    healed: list[Deviation] = []
    entries, _, _ = await read_list("bugs", answering([page]), "tools", heal=healed.append)
    assert entries == ()
    assert healed == [Deviation.ITEMS_MISSING]


async def test_too_many_entries_are_refused() -> None:
    assert await reason_of(pages(listing.MAX_ENTRIES, 1)) is Reason.TOO_LARGE


async def test_too_many_bytes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_BYTES", 1000)
    assert await reason_of(pages(10, 10, 10)) is Reason.TOO_LARGE


async def test_only_lists_that_the_upstream_has_are_read() -> None:
    asked: list[str] = []

    def answer(method: str) -> Mapping[str, Any]:
        asked.append(method)
        return {"tools": []}

    await read_all("bugs", always(answer), Discovered({"tools": {}, "logging": {}}))
    assert asked == ["tools/list"]


async def test_resources_without_a_method_for_templates_have_none() -> None:
    def answer(method: str) -> Mapping[str, Any]:
        if method == "resources/templates/list":
            raise UpstreamError("bugs", -32601, "Method not found")
        return {"resources": [{"uri": "memo://a", "name": "a"}]}

    listed = await read_all("bugs", always(answer), Discovered({"resources": {}}))
    assert [entry["uri"] for entry in listed.lists["resources"]] == ["memo://a"]
    assert listed.lists["templates"] == ()


async def test_the_shortest_time_to_live_counts_and_stale_at_once_is_the_shortest_refresh() -> None:
    made = pages(1, 1, 1)
    made[0]["ttlMs"], made[1]["ttlMs"] = 9000, 3000
    listed = await read_all("bugs", answering(made), Discovered({"tools": {}}))
    assert listed.ttl_ms == 3000
    made = pages(1)
    made[0]["ttlMs"] = 0
    assert (await read_all("bugs", answering(made), Discovered({"tools": {}}))).ttl_ms == 10_000


async def test_an_upstream_says_who_it_is() -> None:
    about = {
        **RELEASED,
        "instructions": "Ask first.",
        "capabilities": {"tools": {"listChanged": True, "x": [1] * 9}, "resources": 7, "x": {"a": 1}, "prompts": None},
    }
    healed: list[Deviation] = []
    found = await discover(always(lambda _method: about), healed.append)
    assert found.instructions == "Ask first."
    assert found.capabilities == {"tools": {"listChanged": True}}, "others may be large"
    assert not healed
    assert found.offers("tools", "listChanged")
    assert not found.offers("prompts")


@pytest.mark.parametrize(
    ("declared", "known"),
    [
        ({"tools": [], "prompts": True, "resources": False}, {"tools", "prompts"}),
        ({}, {"tools"}),
        (None, {"tools"}),
        ([], {"tools"}),
        ({"tools": None, "completions": {}, "logging": {}}, {"completions", "tools"}),
        ({"prompts": {}}, {"prompts"}),
    ],
)
async def test_tools_are_looked_for_where_no_list_is_declared(declared: Any, known: set[str]) -> None:
    healed: list[Deviation] = []
    found = await discover(always(lambda _method: {**RELEASED, "capabilities": declared}), healed.append)
    assert found.capabilities.keys() == known
    assert {*healed} == (set() if declared == {"prompts": {}} else {Deviation.CAPABILITIES})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
PAGE = st.fixed_dictionaries(
    {},
    optional={
        "tools": JSON | st.lists(st.fixed_dictionaries({"name": JSON}), max_size=4),
        "nextCursor": JSON,
        "ttlMs": JSON,
    },
)


@given(st.lists(PAGE, min_size=1, max_size=5))
async def test_any_answer_is_read_or_refused_as_a_failure(made: list[dict[str, Any]]) -> None:
    remaining = iter([*made, {"tools": []}])

    async def ask(_method: str, _params: dict[str, Any]) -> Mapping[str, Any]:
        return next(remaining, {"tools": []})

    try:
        entries, ttl, _ = await read_list("bugs", ask, "tools")
    except UpstreamFailure:
        return
    names = [entry["name"] for entry in entries]
    assert len(set(names)) == len(names)
    assert ttl is None or ttl > 0
