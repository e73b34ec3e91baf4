"""A registry of parts: local functions first, upstreams behind them, replaced one at a time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import complete, prompt, resource, tool
from gateway.registry.inventory import inventory
from gateway.registry.parts import KINDS, TTL_MS, Hidden, Offer, Part
from gateway.registry.registry import MAX_INSTRUCTIONS_BYTES, MAX_NAMES, Registry
from gateway.registry.relayed import RelayedResource, RelayedTool
from tests.parts import Unlisted, part, relayed_resource, relayed_tool


async def nothing() -> str:
    """Do nothing."""
    return ""


async def read(name: str) -> str:
    """Read what has this name."""
    return name


def local(names: Iterable[str]) -> Registry:
    """Return a registry with local functions only: one of each kind for every name."""
    entries: list[object] = []
    for name in names:
        entries += [tool(name)(nothing), prompt(name)(nothing)]
        entries += [resource(f"docs://{name}")(nothing), resource(f"docs-{name}://{{name}}")(read)]
    return Registry(entries)


def upstream_of(served: Any) -> str | None:
    return None if served is None else served.upstream


def test_local_entries_come_first_then_each_part_in_order() -> None:
    registry = local("ab").arranged([part("two", "cd"), part("one", "ab")])
    assert list(registry.tools) == ["a", "b", "two__c", "two__d", "one__a", "one__b"]
    assert list(registry.prompts) == list(registry.tools)
    assert list(registry.resources) == [
        *("docs://a", "docs://b"),
        *("two+docs://c", "two+docs://d", "one+docs://a", "one+docs://b"),
    ]
    assert len(registry.templates) == 6
    assert registry.names >= {"a", "two__c", "one+docs://a", "one+docs-a://{name}"}


def test_an_arranged_registry_leaves_the_one_before_as_it_was() -> None:
    before = local("a")
    first = before.arranged([part("one", "x")])
    second = first.replaced(part("one", "y"))
    third = second.arranged([])
    assert [list(each.tools) for each in (before, first, second, third)] == [
        ["a"],
        ["a", "one__x"],
        ["a", "one__y"],
        ["a"],
    ]


def test_a_replaced_part_keeps_its_place_and_a_new_one_comes_last() -> None:
    registry = local("").arranged([part("one", "x"), part("two", "x"), part("three", "x")])
    assert list(registry.replaced(part("two", "yz")).tools) == ["one__x", "two__y", "two__z", "three__x"]
    assert [each.name for each in registry.replaced(part("four", "x")).parts] == ["one", "two", "three", "four"]


def test_what_did_not_change_is_the_same_object_in_the_next_registry() -> None:
    parts = [part("one", "x"), part("two", "x")]
    before = local("a").arranged(parts)
    after = before.replaced(part("two", "y"))
    assert after.shares[:2] == before.shares[:2]
    assert all(after.shares[1].entries(kind) is parts[0].entries(kind) for kind in KINDS)
    assert after.shares[2] is not before.shares[2]


def test_local_names_win_and_earlier_parts_win_over_later_ones() -> None:
    flat = part("flat", ["a", "x__b"], prefix="")
    registry = local("a").arranged([flat, part("x", "bc")])
    assert upstream_of(registry.tools["a"]) == ""
    assert upstream_of(registry.tools["x__b"]) == "x"
    assert upstream_of(registry.tools["x__c"]) == "x"
    assert Hidden("flat", "tools", "a") in registry.hidden
    assert Hidden("flat", "tools", "x__b") in registry.hidden
    assert {(each.part, each.kind) for each in registry.hidden} == {("flat", kind) for kind in KINDS}


def test_a_part_without_prefix_has_no_name_of_another_one_even_while_that_one_is_not_listed() -> None:
    names = {"tools": "one__pay", "prompts": "one__pay", "resources": "ONE+docs://a", "templates": "ui://one.a/{b}"}
    served = {
        "tools": {names["tools"]: relayed_tool("flat", names["tools"])},
        "resources": {names["resources"]: relayed_resource("flat", names["resources"])},
        "templates": {names["templates"]: relayed_resource("flat", names["templates"])},
    }
    flat = Part("flat", "", **served)  # type: ignore[arg-type]
    registry = local("a").arranged([flat, part("one", finder=Unlisted("one"))])
    assert {entry.kind for entry in registry.hidden} == served.keys()
    assert upstream_of(registry.find_tool("one__pay")) == "one"
    assert found_by(registry, "one+docs://a") == ("one", "one+docs://a")
    assert not registry.shares[1].owns("prompts", names["prompts"])
    assert upstream_of(registry.arranged([flat]).find_tool("one__pay")) == "flat"


def test_what_was_hidden_is_served_once_nothing_hides_it() -> None:
    later = part("flat", ["a", "b"], prefix="")
    hiding = local("a").arranged([later])
    assert list(hiding.shares[1].entries("tools")) == ["b"]
    assert local("c").arranged(hiding.parts).hidden == []
    assert upstream_of(local("c").arranged(hiding.parts).tools["a"]) == "flat"


def test_a_name_without_list_entry_is_found_by_the_part_of_its_prefix() -> None:
    one, flat = Unlisted("one"), Unlisted("flat")
    registry = local("a").arranged([part("flat", prefix="", finder=flat), part("one", finder=one), part("bare")])
    assert upstream_of(registry.find_tool("one__new")) == "one"
    assert upstream_of(registry.find_prompt("one__new")) == "one"
    assert upstream_of(registry.find_tool("new")) == "flat"
    assert upstream_of(registry.find_tool("other__new")) == "flat"
    assert registry.find_tool("one__denied") is None
    assert registry.find_tool("bare__new") is None
    assert upstream_of(registry.find_tool("a")) == ""
    assert one.asked == [("tools", "one__new"), ("prompts", "one__new"), ("tools", "one__denied")]
    assert local("a").find_tool("one__new") is None
    found = registry.find_tool("one__new")
    assert found is not None
    assert found.label == "other"
    assert "one__new" not in registry.names


def found_by(registry: Registry, uri: str) -> tuple[str, str] | None:
    """Return which upstream serves a URI, and what it is called there."""
    found = registry.find_resource(uri)
    return None if found is None else (found[0].upstream, found[0].uri)


def test_a_uri_is_found_by_its_list_then_by_a_local_template_then_by_the_finder_of_its_prefix() -> None:
    one = part("one", ["a"], finder=Unlisted("one"))
    registry = local("a").arranged([one, part("two", ["a"])])
    assert found_by(registry, "docs://a") == ("", "docs://a")
    assert found_by(registry, "docs-a://x") == ("", "docs-a://{name}")
    assert found_by(registry, "one+docs://a") == ("one", "one+docs://a")
    assert found_by(registry, "one+docs://new") == ("one", "one+docs://new")
    assert found_by(registry, "two+docs-a://x") is None
    assert found_by(registry, "two+docs://new") is None
    assert found_by(registry, "one+docs://denied") is None
    assert found_by(registry, "three+docs://a") is None
    assert found_by(registry, "docs://new") is None


@pytest.mark.parametrize("spelled", ["ONE+docs://a", "One+docs://a", "ONE+docs-a://x", "oNE+docs://New"])
def test_the_prefix_of_a_uri_has_no_case(spelled: str) -> None:
    registry = local("").arranged([part("one", ["a"], finder=Unlisted("one"))])
    own = "one" + spelled[3:]
    assert found_by(registry, spelled) == found_by(registry, own)
    assert found_by(registry, own) is not None


def test_a_ui_resource_has_the_prefix_in_its_authority() -> None:
    listed = relayed_resource("one", "ui://one.app/main")
    registry = local("").arranged([Part("one", "one", resources={listed.uri: listed}, finder=Unlisted("one"))])
    assert found_by(registry, "UI://ONE.app/main") == ("one", "ui://one.app/main")
    assert found_by(registry, "ui://one.app/other") == ("one", "ui://one.app/other")
    assert found_by(registry, "ui://two.app/main") is None
    assert found_by(registry, "ui://app/one.html") is None


def test_a_part_without_prefix_serves_every_uri_that_no_other_part_has() -> None:
    registry = local("a").arranged(
        [part("flat", prefix="", finder=Unlisted("flat")), part("one", finder=Unlisted("one"))]
    )
    assert found_by(registry, "docs://a") == ("", "docs://a")
    assert found_by(registry, "one+x://y") == ("one", "one+x://y")
    assert found_by(registry, "file:///x+y") == ("flat", "file:///x+y")


def test_continuing_a_call_needs_the_scopes_of_what_is_served_now() -> None:
    started = relayed_tool("one", "one__t", scopes=["old"])
    stricter = part("one", "t", tool={"scopes": ["new"]}, finder=Unlisted("one", scopes=["found"]))
    registry = local("").arranged([stricter])
    assert registry.scopes_of(started, "one__t") == {"old", "new"}
    assert registry.scopes_of(started, "one__gone") == {"old", "found"}
    assert local("").scopes_of(started, "one__t") == {"old"}
    readable = relayed_resource("one", "one+docs://x", scopes=["old"])
    assert registry.scopes_of(readable, "one+docs://x") == {"old", "found"}


def test_lists_may_be_cached_as_long_as_the_shortest_part_says() -> None:
    assert local("a").ttl_ms == TTL_MS
    assert local("a").arranged([part("one"), part("two", ttl_ms=5000)]).ttl_ms == 5000


def test_only_so_many_names_of_an_upstream_have_metrics_and_all_local_ones() -> None:
    own = local("a").names
    many = part("one", "".join(chr(number) for number in range(0x4E00, 0x4E00 + MAX_NAMES)))
    registry = local("a").arranged([many])
    assert own < registry.names
    assert len(registry.names - own) == MAX_NAMES < len(registry.tools) + len(registry.prompts)


class Pending:
    """The first listing of an upstream."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    async def wait(self) -> object:
        return await self.event.wait()


def test_while_an_upstream_was_never_listed_lists_may_be_cached_for_a_second() -> None:
    registry = local("a").arranged([part("one"), part("two", ready=Pending())])
    assert registry.ttl_ms == 1000
    assert [each.name for each in registry.pending] == ["two"]
    assert registry.replaced(part("two")).ttl_ms == TTL_MS


async def test_waiting_for_a_part_ends_with_its_first_listing() -> None:
    pending = Pending()
    waiting = asyncio.create_task(part("one", ready=pending).wait(60))
    pending.event.set()
    async with asyncio.timeout(5):
        await waiting
    await part("one").wait(60)


async def test_waiting_for_a_part_ends_with_the_time_after_which_nobody_waits_for_it_again() -> None:
    waited = part("one", ready=Pending())
    await waited.wait(0.01)
    async with asyncio.timeout(5):
        await waited.wait(60)


def test_the_capabilities_follow_from_local_functions_and_from_what_upstreams_may_have() -> None:
    bare = Registry([tool("t")(nothing)])
    offers: tuple[Offer, ...] = ("prompts", "resources", "completions")
    assert [bare.offers(each) for each in offers] == [False, False, False]
    assert [bare.arranged([part("one")]).offers(each) for each in offers] == [True, True, True]
    limited = bare.arranged([part("one", may_have=frozenset({"resources"}))])
    assert [limited.offers(each) for each in offers] == [False, True, False]
    asking = prompt("p")(read)

    @complete(asking, "name")
    async def names(typed: str) -> list[str]:
        return [typed]

    assert Registry([asking, names]).offers("completions")


def test_the_instructions_of_upstreams_stand_under_their_prefix_and_are_cut() -> None:
    registry = local("").arranged(
        [
            part("one", instructions="Use it.\n"),
            part("none"),
            part("blank", instructions=" \n"),
            part("long", instructions="ä" * MAX_INSTRUCTIONS_BYTES),
            part("flat", prefix="", instructions="No heading."),
        ]
    )
    cut = "ä" * (MAX_INSTRUCTIONS_BYTES // 2 - 1)
    assert registry.instructions == f"# one\n\n> Use it.\n\n# long\n\n> {cut}\n\n> No heading."
    odd = local("").arranged([part("one", instructions="x" + "ä" * MAX_INSTRUCTIONS_BYTES)])
    assert len(odd.instructions.encode()) < MAX_INSTRUCTIONS_BYTES + len("# one\n\n")
    assert local("").arranged([part("bad", prefix="", instructions="\ud800")]).instructions == "> ?"


@given(st.text(st.sampled_from("# good>=-`\n\r\x0b\x0c\x1c\x85\u2028\u2029 ")), st.sampled_from(["evil", ""]))
def test_no_upstream_can_write_a_line_of_another_one(text: str, prefix: str) -> None:
    said = local("").arranged([part("evil", prefix=prefix, instructions=text), part("good", instructions="Be kind.")])
    own, heading, good = said.instructions.rpartition("# good\n\n> Be kind.")
    assert (heading, good) == ("# good\n\n> Be kind.", "")
    lines = own.removeprefix("# evil\n\n" if prefix else "").splitlines()
    assert all(line.startswith(">") for line in lines if line)


def test_a_relay_belongs_to_the_part_with_the_name_of_its_upstream() -> None:
    first, second = part("one", "a"), part("one", "a")
    registry = local("a").arranged([first])
    assert registry.part_of(registry.tools["one__a"]) is first
    assert registry.replaced(second).part_of(registry.tools["one__a"]) is second
    assert registry.part_of(registry.tools["a"]) is None
    assert local("a").part_of(registry.tools["one__a"]) is None


def test_the_inventory_names_the_upstream_of_each_entry_that_has_one() -> None:
    registry = local("a").arranged([part("one", "b")])
    entries = json.loads(json.dumps(inventory(registry)))
    assert [(entry["kind"], entry["name"], entry.get("upstream")) for entry in entries] == [
        ("tool", "a", None),
        ("tool", "one__b", "one"),
        ("prompt", "a", None),
        ("prompt", "one__b", "one"),
        ("resource", "nothing", None),
        ("resource", "one+docs://b", "one"),
        ("resource", "read", None),
        ("resource", "one+docs-b://{name}", "one"),
    ]
    relay = entries[1]
    assert (relay["version"], relay["scopes"], relay["asks"], relay["migrations"], relay["task"]) == (
        *(1, [], None, {}),
        "forbidden",
    )


def test_relays_are_tools_and_resources_like_others() -> None:
    registry = local("").arranged([part("one", "a")])
    assert isinstance(registry.find_tool("one__a"), RelayedTool)
    found = registry.find_resource("one+docs://a")
    assert found is not None
    assert isinstance(found[0], RelayedResource)
