"""The lists of an upstream count as the memory that they take, whatever their bytes are."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from gateway.protocol.param_headers import MAX_TOKEN_CHARACTERS
from gateway.protocol.strict_json import decode, encode
from gateway.protocol.upstream.entries import encode_listed, served_bytes
from gateway.protocol.upstream.responses import MAX_VALUES
from gateway.registry.parts import Kind
from gateway.upstreams.failures import Reason, UpstreamFailure
from gateway.upstreams.lists import listing
from gateway.upstreams.lists.listing import LISTS, Discovered, Listed, read_all, read_list
from tests.upstreams.lists.fakes import FakeUpstream, Served, definition_of, tool

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("only_new_objects")]

MANY = 500
FEW = 20
ALL = Discovered({"tools": {}, "prompts": {}, "resources": {}})

Entry = Callable[[int], dict[str, Any]]


def with_many_objects(number: int, **members: Any) -> dict[str, Any]:
    """Return a tool with a thousand properties that say nothing."""
    schema = {"type": "object", "properties": {f"a{each}": {} for each in range(1000)}}
    return {"name": f"t{number}", "inputSchema": schema, **members}


def with_header_names(number: int, *, characters: int = 0, levels: int = 0) -> dict[str, Any]:
    """Return a tool with two hundred headers, whose names have at least so many characters, and lie so deep."""
    properties: dict[str, Any] = {
        f"a{each}": {"type": "string", "x-mcp-header": f"H{each}".ljust(characters, "x")} for each in range(200)
    }
    for _ in range(levels):
        properties = {"o": {"type": "object", "properties": properties}}
    return {"name": f"t{number}", "inputSchema": {"type": "object", "properties": properties}}


KINDS: Mapping[str, tuple[Kind, int, Entry]] = {
    "tools": ("tools", MANY, lambda number: tool(f"t{number}")),
    "prompts": ("prompts", MANY, lambda number: {"name": f"p{number}", "arguments": [{"name": "a"}]}),
    "resources": ("resources", MANY, lambda number: {"uri": f"a:{number}", "name": "n"}),
    "templates": ("templates", MANY, lambda number: {"uriTemplate": f"a:{number}/{{x}}", "name": "n"}),
    "URIs that others write longer": ("resources", FEW, lambda number: {"uri": f"a:{number}/{'<' * 800}", "name": "n"}),
    "long templates": ("templates", FEW, lambda number: {"uriTemplate": f"a:{number}/{'é' * 800}{{x}}", "name": "n"}),
    "long URIs": ("resources", FEW, lambda number: {"uri": f"a:{number}/{'é' * 800}", "name": "n"}),
    "texts that are cleaned": ("tools", MANY, lambda number: tool(f"t{number}", description="\u0100\u200b" * 500)),
    "empty objects": ("tools", FEW, with_many_objects),
    "copied objects": ("tools", FEW, lambda number: with_many_objects(number, description="é")),
    "headers": ("tools", FEW, with_header_names),
    "long headers": (
        "tools",
        FEW,
        lambda number: with_header_names(number, characters=MAX_TOKEN_CHARACTERS, levels=28),
    ),
}


def realistic(number: int, text: str) -> dict[str, Any]:
    """Return a tool as real servers have them, with twenty parameters."""
    properties = {
        f"parameter_{each}": {"type": "string", "description": text, "enum": ["open", "closed", "all"]}
        for each in range(20)
    }
    schema = {"type": "object", "properties": properties, "required": ["parameter_0", "parameter_1"]}
    return {"name": f"tool_{number}", "description": 4 * text, "inputSchema": schema}


@pytest.fixture
def traced() -> Iterator[Callable[[], int]]:
    """Return the memory that was allocated since the test began and is still in use."""

    def in_use() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    gc.collect()
    tracemalloc.start()
    try:
        yield in_use
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", KINDS)
async def test_served_entries_take_no_more_memory_than_they_count(name: str, traced: Callable[[], int]) -> None:
    kind, number, entry = KINDS[name]
    served = Served(definition_of(), FakeUpstream())
    entries = [entry(each) for each in range(number)]
    body = encode(entries)
    counted = served_bytes(kind, entries, body)
    before = traced()
    raw = tuple(decode(body, max_values=10**9))
    part = await served.live._parts.listed(Listed(ALL, {**dict.fromkeys(LISTS, ()), kind: raw}), None)
    assert len(part.entries(kind)) == number
    taken = traced() - before
    assert taken <= counted < 10 * taken


def test_a_lone_surrogate_hides_nothing_from_the_count() -> None:
    plain, hiding = with_many_objects(0, description=""), with_many_objects(0, description="\ud800")
    hidden, shown = (served_bytes("tools", [entry], encode_listed([entry])) for entry in (hiding, plain))
    assert hidden > shown


async def test_small_values_on_many_pages_are_refused_long_before_their_bytes_are_too_many() -> None:
    page = [with_many_objects(number) for number in range(48)]
    body = encode(page)
    assert decode(body, max_values=MAX_VALUES)
    assert len(body) * 64 < listing.MAX_BYTES
    asked: list[str] = []

    async def ask(method: str, _params: dict[str, Any]) -> Mapping[str, Any]:
        asked.append(method)
        return {"tools": page, "nextCursor": str(len(asked))}

    with pytest.raises(UpstreamFailure) as refused:
        await read_list("bugs", ask, "tools")
    assert refused.value.reason is Reason.TOO_LARGE
    assert "memory" in refused.value.detail
    assert len(asked) == 10


async def test_the_lists_of_an_upstream_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    page = [{"name": "a", "uri": "a:b", "uriTemplate": "a:{b}"}]
    size = sum(served_bytes(kind, page, encode(page)) for kind in LISTS)

    async def ask(_method: str, _params: dict[str, Any]) -> Mapping[str, Any]:
        return {form.member: page for form in LISTS.values()}

    monkeypatch.setattr(listing, "MAX_MEMORY_BYTES", size)
    assert all((await read_all("bugs", ask, ALL)).lists.values())
    monkeypatch.setattr(listing, "MAX_MEMORY_BYTES", size - 1)
    with pytest.raises(UpstreamFailure) as refused:
        await read_all("bugs", ask, ALL)
    assert refused.value.reason is Reason.TOO_LARGE


@pytest.mark.parametrize("text", ["The name of the project", "Der Name des Projekts, für das die Suche gilt"])
async def test_a_thousand_ordinary_tools_take_much_less_than_is_allowed(text: str) -> None:
    page = [realistic(number, text) for number in range(1000)]

    async def ask(_method: str, _params: dict[str, Any]) -> Mapping[str, Any]:
        return {"tools": page}

    entries, _, memory = await read_list("bugs", ask, "tools")
    assert len(entries) == 1000
    assert memory < 0.6 * listing.MAX_MEMORY_BYTES


async def test_what_is_not_served_of_a_list_is_not_kept() -> None:
    upstream = FakeUpstream("search")
    upstream.lists["tools"] = [*upstream.lists["tools"], {"name": "unusable"}]
    served = Served(definition_of(), upstream)
    async with served.running():
        assert list((await served.next_part()).tools) == ["bugs__search"]
        await served.live._refresh()
        assert served.parts.empty(), "lists that are the same are known by their digest"
        assert served.live._listed is not None
        assert not served.live._listed.lists
