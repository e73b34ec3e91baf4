"""Lists: complete, in order, and the same from every replica."""

from __future__ import annotations

import functools
import math
import os
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import complete, prompt, resource, tool
from gateway.errors import InvalidParams
from gateway.protocol.handshake.results import HandshakeResults
from gateway.protocol.jsonrpc import result_response
from gateway.protocol.released.results import ResultWriter
from gateway.registry.parts import TTL_MS
from gateway.registry.registry import Registry
from gateway.sealing.keyring import KeyRing
from gateway.sealing.principal import Principal
from gateway.tokens.key_holder import KeyHolder
from gateway.wires.catalogue import (
    PAGE_SIZE,
    Catalogue,
    draft_capabilities,
    handshake_capabilities,
    handshake_entry,
    released_capabilities,
)
from loadtest.cluster import new_key

KEY, OTHER_KEY = new_key(), new_key()
LISTS = ("tools", "prompts", "resources", "resourceTemplates")
NAME_FIELDS = {"tools": "name", "prompts": "name", "resources": "uri", "resourceTemplates": "uriTemplate"}


@dataclass(frozen=True)
class Caller:
    """Somebody whose token has these scopes."""

    scopes: frozenset[str] = frozenset()
    principal: Principal | None = None
    ends_at: float = math.inf
    key: bytes = b""
    exchange: None = None

    def grants(self, scopes: frozenset[str]) -> bool:
        return scopes <= self.scopes


ANYBODY = Caller()


async def nothing() -> str:
    """Do nothing."""
    return ""


async def read(name: str) -> str:
    """Read what has this name."""
    return name


@functools.cache
def entries(name: str, replica: int) -> Sequence[object]:
    """Return one of each kind with this name, as one of several replicas has read it."""
    listed = [resource(f"docs://{name}")(nothing), resource(f"{name}://{{name}}")(read)]
    return [tool(name)(nothing), prompt(name)(nothing), *listed]


def registry(names: Iterable[str], replica: int = 0) -> Registry:
    """Return a registry with one of each kind for every name."""
    return Registry(entry for name in names for entry in entries(name, replica))


def shuffled(count: int) -> list[str]:
    names = [f"n{number}" for number in range(count)]
    random.Random(1).shuffle(names)
    return names


def catalogue(served: Registry, *keys: str, page_size: int = PAGE_SIZE) -> Catalogue:
    ring = KeyRing.parse(",".join(keys or (KEY,)))
    holder = KeyHolder(ring, "tests", clock=time.time, random_bytes=os.urandom)
    return Catalogue(served, ResultWriter({"name": "test", "version": "1"}), holder, {}, page_size)


def pages(told: Catalogue, name: str, caller: Caller = ANYBODY) -> list[dict[str, Any]]:
    """Return all pages of a list, each asked for with the cursor of the one before."""
    found = [told.page(name, None, caller)]
    while "nextCursor" in found[-1]:
        found.append(told.page(name, found[-1]["nextCursor"], caller))
    return found


def names_on(found: Iterable[dict[str, Any]], name: str) -> list[str]:
    return [entry[NAME_FIELDS[name]] for page in found for entry in page[name]]


@pytest.mark.parametrize("name", LISTS)
def test_a_hundred_entries_come_complete_and_in_the_order_of_registration(name: str) -> None:
    served = registry(shuffled(110))
    found = pages(catalogue(served, page_size=25), name)
    assert len(found) == 5
    assert [len(page[name]) for page in found] == [25, 25, 25, 25, 10]
    expected = {
        "tools": list(served.tools),
        "prompts": list(served.prompts),
        "resources": list(served.resources),
        "resourceTemplates": list(served.templates),
    }
    assert names_on(found, name) == expected[name]
    assert len(set(expected[name])) == 110


@pytest.mark.parametrize("name", LISTS)
def test_two_replicas_send_the_same_bytes_and_continue_where_the_other_stopped(name: str) -> None:
    one, other = (catalogue(registry(shuffled(110), replica), page_size=25) for replica in range(2))
    alternating = [one.page(name, None, ANYBODY)]
    while "nextCursor" in alternating[-1]:
        told = (one, other)[len(alternating) % 2]
        alternating.append(told.page(name, alternating[-1]["nextCursor"], ANYBODY))
    encoded = [[result_response(1, page) for page in found] for found in (alternating, pages(one, name))]
    assert encoded[0] == encoded[1]
    assert len(encoded[0]) == 5


@functools.cache
def served_in_part(count: int) -> Registry:
    """Every third tool asks for a scope, the first among them."""
    return Registry(tool(f"t{at}", scopes=[] if at % 3 else ["admin"])(nothing) for at in range(count))


@pytest.mark.parametrize("scopes", [[], ["other"], ["admin"], ["admin", "other"]])
def test_a_caller_without_the_scopes_of_entries_gets_all_others_in_full_pages(scopes: list[str]) -> None:
    told = catalogue(served_in_part(95), page_size=10)
    found = pages(told, "tools", Caller(frozenset(scopes)))
    expected = [f"t{at}" for at in range(95) if at % 3 or "admin" in scopes]
    assert names_on(found, "tools") == expected
    assert all(len(page["tools"]) == 10 for page in found[:-1])
    assert found[-1]["tools"]


def test_a_list_is_private_for_everyone_as_soon_as_one_entry_has_scopes() -> None:
    told = catalogue(served_in_part(20), page_size=10)
    for scopes in ([], ["admin"]):
        found = pages(told, "tools", Caller(frozenset(scopes)))
        assert {page["cacheScope"] for page in found} == {"private"}
    assert told.page("prompts", None, ANYBODY)["cacheScope"] == "public"


def test_entries_of_one_caller_are_not_shown_to_the_next() -> None:
    told = catalogue(served_in_part(5))
    admin = Caller(frozenset(["admin"]))
    for caller, count in ((admin, 5), (ANYBODY, 3), (admin, 5), (ANYBODY, 3)):
        assert len(told.page("tools", None, caller)["tools"]) == count


def test_every_page_has_the_same_caching_hints() -> None:
    told = catalogue(registry(shuffled(30)), page_size=10)
    found = [page for name in LISTS for page in pages(told, name)]
    assert {(page["ttlMs"], page["cacheScope"], page["resultType"]) for page in found} == {
        (TTL_MS, "public", "complete")
    }
    assert all(page["_meta"] for page in found)


@pytest.mark.parametrize(("count", "sizes"), [(0, [0]), (1, [1]), (10, [10]), (11, [10, 1]), (20, [10, 10])])
def test_the_last_page_has_no_cursor_and_is_never_empty_but_for_an_empty_list(count: int, sizes: list[int]) -> None:
    found = pages(catalogue(registry(shuffled(count)), page_size=10), "tools")
    assert [len(page["tools"]) for page in found] == sizes


def test_a_cursor_survives_the_rotation_of_keys() -> None:
    served = registry(shuffled(20))
    old, rotating, new = (catalogue(served, *keys, page_size=10) for keys in ((KEY,), (OTHER_KEY, KEY), (OTHER_KEY,)))
    cursor = old.page("tools", None, ANYBODY)["nextCursor"]
    assert rotating.page("tools", cursor, ANYBODY) == old.page("tools", cursor, ANYBODY)
    with pytest.raises(InvalidParams):
        new.page("tools", cursor, ANYBODY)


def test_a_cursor_continues_after_its_entry_though_the_list_has_changed_before_it() -> None:
    names = shuffled(20)
    cursor = catalogue(registry(names), page_size=10).page("tools", None, ANYBODY)["nextCursor"]
    grown = catalogue(registry(["first", *names[3:]]), page_size=10)
    assert names_on([grown.page("tools", cursor, ANYBODY)], "tools") == names[10:20]


def test_a_cursor_whose_entry_is_gone_continues_with_the_next_entry() -> None:
    names = shuffled(20)
    cursor = catalogue(registry(names), page_size=10).page("tools", None, ANYBODY)["nextCursor"]
    shrunk = catalogue(registry([name for name in names if name != names[9]]), page_size=10)
    assert names_on([shrunk.page("tools", cursor, ANYBODY)], "tools") == names[10:20]


@pytest.mark.parametrize("name", LISTS)
def test_a_cursor_of_one_list_is_none_of_another(name: str) -> None:
    told = catalogue(registry(shuffled(20)), page_size=10)
    for other in set(LISTS) - {name}:
        with pytest.raises(InvalidParams, match="Unknown cursor"):
            told.page(other, told.page(name, None, ANYBODY)["nextCursor"], ANYBODY)


JUNK = catalogue(registry(shuffled(20)), page_size=10)
GOOD = JUNK.page("tools", None, ANYBODY)["nextCursor"]


@given(st.text() | st.integers(0, len(GOOD) - 1).map(lambda at: GOOD[:at]) | st.text(min_size=1).map(GOOD.__add__))
def test_what_is_no_cursor_of_ours_is_unknown(cursor: str) -> None:
    with pytest.raises(InvalidParams, match="Unknown cursor"):
        JUNK.page("tools", cursor, ANYBODY)


@given(st.integers(0, len(GOOD) - 1), st.characters(codec="ascii"))
def test_a_cursor_that_was_altered_anywhere_is_unknown(at: int, character: str) -> None:
    altered = GOOD[:at] + character + GOOD[at + 1 :]
    if altered != GOOD:
        with pytest.raises(InvalidParams, match="Unknown cursor"):
            JUNK.page("tools", altered, ANYBODY)


def changed(before: Sequence[object], after: Sequence[object]) -> list[str]:
    return catalogue(Registry(before)).changed_lists(catalogue(Registry(after)))


def test_only_lists_with_visible_differences_have_changed() -> None:
    a_tool, a_prompt = tool("t")(nothing), prompt("p")(nothing)
    a_resource, a_template = resource("docs://r")(nothing), resource("docs://{name}")(read)
    everything = [a_tool, a_prompt, a_resource, a_template]
    assert changed(everything, everything) == []
    assert changed(everything, [tool("t")(nothing), *everything[1:]]) == []
    assert changed(everything, [tool("t", title="T")(nothing), *everything[1:]]) == ["tools"]
    assert changed(everything, [tool("t", scopes=["admin"])(nothing), *everything[1:]]) == ["tools"]
    assert changed(everything, everything[1:]) == ["tools"]
    assert changed(everything, [a_tool, a_resource, a_template]) == ["prompts"]
    assert changed(everything, [a_tool, a_prompt, a_template]) == ["resources"]
    assert changed(everything, [a_tool, a_prompt, a_resource]) == ["resources"]
    assert changed(everything, []) == ["tools", "prompts", "resources"]
    assert changed([], everything) == ["tools", "prompts", "resources"]


def test_another_order_is_another_list() -> None:
    one, two = tool("one")(nothing), tool("two")(nothing)
    assert changed([one, two], [two, one]) == ["tools"]


def capabilities(*entries: object) -> dict[str, Any]:
    return released_capabilities(Registry(entries), tasks=False)


def test_what_is_declared_is_what_is_served() -> None:
    a_prompt, a_template = prompt("p")(read), resource("docs://{name}")(read)
    always = {"tools": {"listChanged": True}, "logging": {}}
    prompts = {"prompts": {"listChanged": True}}
    resources = {"resources": {"listChanged": True, "subscribe": True}}
    assert capabilities() == always
    assert capabilities(tool(nothing)) == always
    assert capabilities(a_prompt) == {**always, **prompts}
    assert capabilities(resource("docs://r")(nothing)) == {**always, **resources}
    assert capabilities(a_template) == {**always, **resources}

    @complete(a_prompt, "name")
    async def names(value: str) -> list[str]:
        return [value]

    assert capabilities(a_prompt, names) == {**always, **prompts, "completions": {}}


def test_what_a_handshake_declares_is_what_is_served_and_no_news_of_it() -> None:
    a_prompt, a_tool = prompt("p")(read), tool(task="optional")(nothing)
    declared = handshake_capabilities(
        Registry([a_prompt, a_tool, resource("docs://r")(nothing)]), tasks=True, lists_tasks=False
    )
    tasks: dict[str, Any] = {"cancel": {}, "requests": {"tools": {"call": {}}}}
    assert declared == {"tools": {}, "logging": {}, "prompts": {}, "resources": {}, "tasks": tasks}
    assert handshake_capabilities(Registry([a_tool]), tasks=False, lists_tasks=True) == {"tools": {}, "logging": {}}


def test_a_handshake_wire_lists_for_each_tool_whether_it_supports_tasks() -> None:
    entries = [handshake_entry(tool("a", task=support)(nothing)) for support in ("forbidden", "optional", "required")]
    assert [entry["execution"] for entry in entries] == [
        {"taskSupport": "forbidden"},
        {"taskSupport": "optional"},
        {"taskSupport": "required"},
    ]
    assert "execution" not in handshake_entry(prompt("p")(read))


def test_an_output_that_is_no_object_is_listed_only_where_clients_know_it() -> None:
    schema = {"type": "array", "items": {"type": "integer"}}
    numbers = tool("numbers", output_schema=schema)(nothing)
    assert numbers.catalogue_entry()["outputSchema"] == schema
    assert "outputSchema" not in handshake_entry(numbers)
    whole = tool("whole", output_schema={"type": "object"})(nothing)
    assert handshake_entry(whole)["outputSchema"] == {"type": "object"}


@pytest.mark.parametrize(("value", "passes"), [([1], False), ("a", False), (None, False), ({"a": 1}, True), ({}, True)])
def test_a_handshake_wire_sends_structured_content_only_if_it_is_an_object(value: Any, passes: bool) -> None:
    told = HandshakeResults(with_progress=False).complete({"content": [], "structuredContent": value})
    assert told == {"content": [], **({"structuredContent": value} if passes else {})}


def test_the_draft_wire_declares_its_response_modes_and_a_list_of_tasks_where_it_is_the_callers_own() -> None:
    served = Registry([tool(task="optional")(nothing)])
    modes = {"modes": ["immediate", "streaming", "task"]}
    declared = draft_capabilities(served, tasks=True, lists_tasks=True)["tasks"]
    assert declared == {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}, "responses": modes}
    assert "list" not in draft_capabilities(served, tasks=True, lists_tasks=False)["tasks"]
    assert "tasks" not in draft_capabilities(served, tasks=False, lists_tasks=True)
