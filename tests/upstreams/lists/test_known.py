"""The entries that a process knows of an upstream: what is forgotten is found under no name and no URI."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gateway.authoring.served import Served
from gateway.protocol.upstream.entries import Kind
from gateway.upstreams import known as known_entries
from gateway.upstreams.known import Known, KnownEntries, judged_of


def known(kind: Kind, own: str, **raw: Any) -> Known:
    return Known(raw, own, *judged_of(kind, own), cast("Served", object()))


def test_a_resource_that_is_forgotten_is_found_in_no_spelling() -> None:
    entries, first, second = KnownEntries(), known("resources", "FILE:/x"), known("resources", "file:/x")
    entries.add("resources", "FILE:/x", first)
    assert entries.get("resources", "FILE:/x") is entries.like("resources", "file:///x") is first
    entries.remove("resources", "FILE:/x")
    assert entries.get("resources", "FILE:/x") is None
    assert entries.like("resources", "file:///x") is None
    entries.add("resources", "file:/x", second)
    assert entries.like("resources", "file:///x") is second


def test_forgetting_a_spelling_leaves_what_is_found_under_the_canonical_one() -> None:
    entries, spelled, canonical = KnownEntries(), known("resources", "FILE:/x"), known("resources", "file:///x")
    entries.add("resources", "FILE:/x", spelled)
    entries.add("resources", "file:///x", canonical)
    entries.remove("resources", "FILE:/x")
    assert entries.like("resources", "file:///x") is canonical


def test_a_template_that_is_forgotten_makes_no_uri() -> None:
    entries = KnownEntries()
    entries.add("templates", "memo://{id}", known("templates", "memo://{id}"))
    assert entries.made("memo://1") == "memo://1"
    assert entries.like("templates", "memo://{id}") is not None
    entries.remove("templates", "memo://{id}")
    assert entries.made("memo://1") is None
    assert entries.like("templates", "memo://{id}") is None


def test_an_entry_that_replaces_another_is_found_instead() -> None:
    entries, changed = KnownEntries(), known("resources", "file:///y")
    entries.add("resources", "a", known("resources", "file:///x"))
    entries.add("resources", "a", changed)
    assert entries.like("resources", "file:///x") is None
    assert entries.like("resources", "file:///y") is changed


def test_the_oldest_entries_are_forgotten_first_and_completely() -> None:
    entries = KnownEntries()
    uris = [f"memo://{number}" for number in range(4)]
    for uri in uris:
        entries.add("resources", uri, known("resources", uri))
    entries.keep(2)
    for find in (entries.get, entries.like):
        found: list[Any] = [find("resources", uri) for uri in uris]
        assert [one is not None for one in found] == [False, False, True, True]


def test_entries_that_take_much_memory_are_forgotten_sooner_and_those_that_were_replaced_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(known_entries, "MAX_MEMORY_BYTES", 23_000)
    entries = KnownEntries()
    for _ in range(10):
        entries.add("tools", "small", known("tools", "small"))
    for name in ("one", "two"):
        entries.add("tools", name, known("tools", name, x="x" * 5_000))
    entries.keep(100)
    assert all(entries.get("tools", name) for name in ("small", "one", "two"))
    entries.add("tools", "values", known("tools", "values", x=[{} for _ in range(50)]))
    entries.keep(100)
    assert [entries.get("tools", name) is None for name in ("small", "one", "two", "values")] == [
        True,
        True,
        False,
        False,
    ]
