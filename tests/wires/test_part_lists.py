"""Lists of many parts: complete, in order, from every replica, while parts change."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping
from typing import Any

import pytest

from bench.counts.meters import Calls
from gateway import tool
from gateway.authoring.served import Served
from gateway.errors import GatewayError, InvalidParams
from gateway.protocol.caller import Caller, Requester
from gateway.protocol.jsonrpc import result_response
from gateway.protocol.legacy.results import LegacyResults
from gateway.protocol.released.results import ResultWriter
from gateway.registry.parts import Part
from gateway.registry.registry import Registry
from gateway.sealing.keyring import KeyRing
from gateway.tokens.key_holder import KeyHolder
from gateway.wires.catalogue import Catalogue, handshake_entry
from loadtest.cluster import new_key
from tests.authorities import caller
from tests.parts import part, relayed_tool

pytestmark = pytest.mark.slow

KEY, OTHER_KEY = new_key(), new_key()
EACH = 90
"""How many entries of each kind one of three parts has."""

LISTS = ("tools", "prompts", "resources", "resourceTemplates")
NAME_FIELDS = {"tools": "name", "prompts": "name", "resources": "uri", "resourceTemplates": "uriTemplate"}
WORDS = ResultWriter({"name": "test", "version": "1"})
ADA, BOB = caller("ada"), caller("bob")


async def nothing() -> str:
    """Do nothing."""
    return ""


def shuffled(count: int, seed: int = 1) -> list[str]:
    names = [f"n{number}" for number in range(count)]
    random.Random(seed).shuffle(names)
    return names


def three_parts() -> Registry:
    """Return what one of several replicas has read from three upstreams."""
    return Registry([tool("local")(nothing)]).arranged(part(name, shuffled(EACH)) for name in ("one", "two", "three"))


def catalogue(registry: Registry, *, page_size: int = 37, key: str = KEY, **more: Any) -> Catalogue:
    keys = KeyHolder(KeyRing.parse(key), "tests", clock=time.time, random_bytes=os.urandom)
    return Catalogue(registry, WORDS, keys, {}, page_size, **more)


def pages(*replicas: Catalogue, name: str = "tools", by: Caller = ADA) -> list[dict[str, Any]]:
    """Return all pages of a list, each from the next replica."""
    found = [replicas[0].page(name, None, by)]
    while "nextCursor" in found[-1]:
        replica = replicas[len(found) % len(replicas)]
        found.append(replica.page(name, found[-1]["nextCursor"], by))
        assert len(found) < 100
    return found


def names_on(found: list[dict[str, Any]], name: str = "tools") -> list[str]:
    return [entry[NAME_FIELDS[name]] for page in found for entry in page[name]]


@pytest.mark.parametrize("name", LISTS)
def test_pages_from_alternating_replicas_are_complete_and_in_order(name: str) -> None:
    one, other = catalogue(three_parts()), catalogue(three_parts())
    alternating = pages(one, other, name=name)
    kind: Any = "templates" if name == "resourceTemplates" else name
    expected = [key for share in three_parts().shares for key in share.entries(kind)]
    assert names_on(alternating, name) == expected
    assert len(set(expected)) == len(expected) == 3 * EACH + (name == "tools")
    assert {len(page[name]) for page in alternating[:-1]} == {37}
    encoded = [[result_response(1, page) for page in found] for found in (alternating, pages(one, name=name))]
    assert encoded[0] == encoded[1]


def test_a_part_that_is_replaced_between_two_pages_changes_only_its_own_entries() -> None:
    before = three_parts()
    names = list(before.tools)
    shrunk = part("two", shuffled(EACH)[40:])
    newer = catalogue(before.replaced(shrunk), earlier=catalogue(before))
    found = [catalogue(before).page("tools", None, ADA)]
    while "nextCursor" in found[-1]:
        found.append(newer.page("tools", found[-1]["nextCursor"], ADA))
    assert names_on(found) == [name for name in names if not name.startswith("two__") or name in shrunk.tools]


def page_after(registry: Registry, cursor: str) -> list[str]:
    return names_on([catalogue(registry).page("tools", cursor, ADA)])


def test_where_the_last_entry_is_gone_the_next_one_follows() -> None:
    names, before = shuffled(100), Registry([])
    full = before.arranged([part("one", names), part("two", "ab")])
    cursor = catalogue(full).page("tools", None, ADA)["nextCursor"]
    expected = [f"one__{name}" for name in names[37:74]]
    assert page_after(full, cursor) == expected
    assert page_after(full.replaced(part("one", [*names[:36], *names[37:]])), cursor) == expected
    assert page_after(full.replaced(part("one", [*names[5:36], *names[36:]])), cursor) == expected
    assert page_after(full.replaced(part("one", names[:30])), cursor) == ["two__a", "two__b"]
    assert page_after(full.replaced(part("one")), cursor) == ["two__a", "two__b"]


def test_where_a_part_is_gone_the_part_in_its_place_follows() -> None:
    parts = [part("one", shuffled(20)), part("two", shuffled(30)), part("three", "ab")]
    cursor = catalogue(Registry([]).arranged(parts)).page("tools", None, ADA)["nextCursor"]
    assert page_after(Registry([]).arranged([parts[0], parts[2]]), cursor) == ["three__a", "three__b"]
    assert page_after(Registry([]).arranged(parts[:1]), cursor) == []
    assert page_after(Registry([]), cursor) == []


def test_a_cursor_finds_its_part_wherever_it_stands_now() -> None:
    parts = [part("one", "ab"), part("two", shuffled(80)), part("three", "ab")]
    cursor = catalogue(Registry([]).arranged(parts)).page("tools", None, ADA)["nextCursor"]
    moved = page_after(Registry([]).arranged([parts[1], parts[0]]), cursor)
    assert moved == [f"two__{name}" for name in shuffled(80)[35:72]]


def test_cursors_of_other_keys_other_lists_and_other_texts_are_refused() -> None:
    registry = three_parts()
    cursor = catalogue(registry).page("tools", None, ADA)["nextCursor"]
    maker = catalogue(registry)._keys.cursors
    foreign = catalogue(registry, key=OTHER_KEY).page("tools", None, ADA)["nextCursor"]
    texts = ["", "n1", "1.2.3", "1.2.9.one", "-1.0.3.oneone__a", "1.99999999999.3.onex"]
    for refused in (foreign, cursor[:-2], *(maker.make("tools", text) for text in texts)):
        with pytest.raises(InvalidParams, match="Unknown cursor"):
            catalogue(registry).page("tools", refused, ADA)
    with pytest.raises(InvalidParams, match="Unknown cursor"):
        catalogue(registry).page("prompts", cursor, ADA)


def test_a_name_with_any_characters_survives_its_cursor() -> None:
    odd = ["1.2.3.", "ä\ud800", "a\nb", "x" * 900]
    entries = {name: relayed_tool("odd.1", name) for name in odd}
    found = pages(catalogue(Registry([]).arranged([Part("odd.1", "", tools=entries)]), page_size=1))
    assert names_on(found) == odd


def test_a_changed_part_leaves_the_entries_and_the_pages_of_others_as_they_were() -> None:
    before = Registry([]).arranged([part("one", shuffled(74)), part("two", shuffled(74)), part("three", shuffled(74))])
    old = catalogue(before)
    first = pages(old)
    made: list[str] = []

    def entry(served: Served) -> dict[str, Any]:
        made.append(served.name)
        return served.catalogue_entry()

    new = catalogue(before.replaced(part("two", shuffled(74, seed=2))), entry=entry, earlier=old)
    second = pages(new)
    assert {name.partition("__")[0] for name in made if "+" not in name} == {"two"}
    same = [one is other for one, other in zip(first, second, strict=True)]
    # Whether the second page has a cursor depends on the part behind it.
    assert same == [True, False, False, False, True, True]
    fresh = pages(catalogue(new.registry))
    assert [result_response(1, page) for page in second] == [result_response(1, page) for page in fresh]


def test_the_last_page_gets_a_cursor_when_a_part_follows() -> None:
    before = Registry([]).arranged([part("one", shuffled(37))])
    old = catalogue(before)
    assert len(pages(old)) == 1
    new = catalogue(before.replaced(part("two", "a")), earlier=old)
    assert names_on(pages(new))[-1] == "two__a"
    assert len(pages(catalogue(new.registry.arranged(before.parts), earlier=new))) == 1


def test_pages_are_made_again_when_the_cache_time_the_server_or_the_order_changes() -> None:
    parts = [part("one", "ab"), part("two", "ab")]
    before = Registry([]).arranged(parts)
    old = catalogue(before)
    assert old.page("tools", None, ADA)["ttlMs"] == 60_000
    hasty = catalogue(before.replaced(part("two", "ab", ttl_ms=3000)), earlier=old)
    assert hasty.page("tools", None, ADA)["ttlMs"] == 3000
    long = Registry([]).arranged([part("one", shuffled(74)), part("two", "ab")])
    read = catalogue(long)
    pages(read)
    hasty = catalogue(long.replaced(part("two", "ab", ttl_ms=3000)), earlier=read)
    assert {page["ttlMs"] for page in pages(hasty)} == {3000}
    moved = catalogue(long.arranged([part("zero", shuffled(37)), *long.parts]), earlier=read)
    assert pages(moved) == pages(catalogue(moved.registry))
    turned = catalogue(before.arranged(reversed(parts)), earlier=old)
    assert names_on(pages(turned)) == ["two__a", "two__b", "one__a", "one__b"]


def test_only_a_list_with_a_difference_has_changed() -> None:
    names = shuffled(EACH)
    before = three_parts()

    def changed(newer: Registry) -> list[str]:
        old = catalogue(before)
        return old.changed_lists(catalogue(newer, earlier=old))

    assert changed(before) == []
    assert changed(before.replaced(part("two", names))) == []
    assert changed(three_parts()) == []
    assert changed(before.replaced(part("two", names[1:]))) == ["tools", "prompts", "resources"]
    assert changed(before.replaced(part("two", names, tool={"title": "T"}))) == ["tools"]
    hinted = before.replaced(part("two", names, tool={"annotations": {"readOnlyHint": 1}}))
    written = hinted.replaced(part("two", names, tool={"annotations": {"readOnlyHint": True}}))
    assert catalogue(hinted).changed_lists(catalogue(written)) == ["tools"]
    assert changed(before.replaced(part("two", names, tool={"scopes": ["admin"]}))) == ["tools"]
    assert changed(before.replaced(part("two", names, resources={}))) == ["resources"]
    assert changed(before.replaced(part("two", names, prompts={}))) == ["prompts"]
    assert changed(before.replaced(part("two", names, revisions={"tools": 1}))) == ["tools"]
    assert changed(before.arranged(reversed(before.parts))) == ["tools", "prompts", "resources"]


def test_entries_of_upstreams_are_made_when_a_page_has_them_and_once() -> None:
    made: list[str] = []

    def entry(served: Served) -> dict[str, Any]:
        made.append(served.name)
        return served.catalogue_entry()

    before = Registry([tool("local")(nothing)]).arranged([part("one", shuffled(EACH)), part("two", shuffled(EACH))])
    told = catalogue(before, entry=entry)
    assert made == ["local"]
    for _ in range(2):
        told.page("tools", None, ADA)
        assert len(made) == 37
    newer = catalogue(before.replaced(part("two", shuffled(EACH)[1:])), entry=entry, earlier=told)
    assert told.changed_lists(newer) == ["tools", "prompts", "resources"]
    assert not [name for name in made if name.startswith("two")], "a number tells that the lists differ"


def test_scopes_of_one_part_make_the_list_private_and_hide_its_entries() -> None:
    registry = Registry([]).arranged([part("one", shuffled(60)), part("two", shuffled(60), tool={"scopes": ["two"]})])
    told = catalogue(registry)
    for by, count in ((caller("ada", "two"), 120), (ADA, 60), (caller("eve", "two"), 120)):
        found = pages(told, by=by)
        assert len(names_on(found)) == count
        assert {page["cacheScope"] for page in found} == {"private"}
    assert told.page("prompts", None, ADA)["cacheScope"] == "public"


def test_a_relays_entry_is_never_changed_by_a_wire() -> None:
    registry = Registry([]).arranged([part("one", "a")])
    keys = KeyHolder(KeyRing.parse(KEY), "tests", clock=time.time, random_bytes=os.urandom)
    handshake = Catalogue(registry, LegacyResults(), keys, {}, entry=handshake_entry)
    assert handshake.page("tools", None, ADA)["tools"][0]["execution"] == {"taskSupport": "forbidden"}
    assert "execution" not in catalogue(registry).page("tools", None, ADA)["tools"][0]


class Lists:
    """Shows each caller tools of its own."""

    def __init__(self, upstream: str, count: int = 50) -> None:
        self.upstream, self.count = upstream, count
        self.asked: list[tuple[str, str]] = []
        self.failure: GatewayError | None = None

    async def entries(self, kind: str, requester: Requester, /) -> Mapping[str, Served]:
        assert requester.principal is not None
        self.asked.append((kind, requester.principal.subject))
        if self.failure is not None:
            raise self.failure
        if kind != "tools":
            return {}
        names = [f"{self.upstream}__{requester.principal.subject}-{at}" for at in range(self.count)]
        return {name: relayed_tool(self.upstream, name) for name in [f"{self.upstream}__shared", *names]}


async def caller_pages(told: Catalogue, by: Caller) -> list[dict[str, Any]]:
    requester = Requester(principal=by.principal)
    found = [await told.page_of("tools", None, by, {}, requester)]
    while "nextCursor" in found[-1]:
        found.append(await told.page_of("tools", found[-1]["nextCursor"], by, {}, requester))
    return found


async def test_a_list_that_depends_on_the_caller_is_fetched_by_caller_and_private() -> None:
    lists = Lists("own")
    registry = three_parts().arranged([part("one", shuffled(40)), part("own", "x", lists=lists), part("two", "ab")])
    told = catalogue(registry)
    assert not told.is_settled
    for by, subject in ((ADA, "ada"), (BOB, "bob"), (ADA, "ada")):
        found = await caller_pages(told, by)
        assert names_on(found) == [
            "local",
            *(f"one__{name}" for name in shuffled(40)),
            "own__shared",
            *(f"own__{subject}-{at}" for at in range(50)),
            *("two__a", "two__b"),
        ]
        assert {page["cacheScope"] for page in found} == {"private"}
        assert {page["ttlMs"] for page in found} == {60_000}
    assert {kind for kind, _ in lists.asked} == {"tools"}


async def test_a_cursor_of_one_caller_goes_on_in_the_list_of_another() -> None:
    told = catalogue(Registry([]).arranged([part("own", lists=Lists("own", 100))]))
    cursor = (await told.page_of("tools", None, ADA, {}, Requester(principal=ADA.principal)))["nextCursor"]
    page = await told.page_of("tools", cursor, BOB, {}, Requester(principal=BOB.principal))
    assert names_on([page]) == [f"own__bob-{at}" for at in range(35, 72)]


async def test_entries_of_a_caller_never_hide_those_of_other_parts() -> None:
    hiding = Lists("own")
    registry = Registry([tool("own__shared")(nothing)]).arranged([part("own", lists=hiding), part("two", "a")])
    found = names_on(await caller_pages(catalogue(registry), ADA))
    assert found.count("own__shared") == 1
    assert len(found) == 52


async def test_a_caller_gets_a_short_lived_list_without_an_upstream_that_cannot_be_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lists = Lists("own")
    lists.failure = GatewayError("gone")
    told = catalogue(Registry([]).arranged([part("own", "x", lists=lists), part("two", "ab")]))
    (page,) = await caller_pages(told, ADA)
    assert names_on([page]) == ["two__a", "two__b"]
    assert page["ttlMs"] == 1000
    assert [record.__dict__["upstream"] for record in caplog.records] == ["own"]


def calls_for(told: Catalogue) -> int:
    """Return how many functions are called for the whole list, from its entries to the encoded pages."""
    made = Calls()
    made.start()
    for page in pages(told):
        result_response(1, page)
    made.stop()
    return made.python + made.builtin


def test_a_list_of_ten_parts_takes_hardly_more_calls_than_a_local_one_of_the_same_size() -> None:
    names = shuffled(250)
    told = tool("any")(nothing).catalogue_entry()
    alike = {field: value for field, value in told.items() if field != "name"}
    local = catalogue(Registry(tool(f"upstream__{name}")(nothing) for name in names), page_size=25)
    parts = [part(f"up{at}", names[at::10], tool=alike) for at in range(10)]
    relayed = catalogue(Registry([]).arranged(parts), page_size=25)
    made_on_demand = 3 * len(names)
    for more in (made_on_demand, 0):
        assert calls_for(relayed) < 1.1 * calls_for(local) + more
    assert len(pages(relayed)) == len(pages(local)) == 10
