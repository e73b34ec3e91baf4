"""Answers of definitions: which names are served, which value a name has, and when two upstreams are one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gateway.upstreams.config.definition import ByGlob, Choice, Credentials, Definition, Scopes

BUGS = Definition("bugs", "bugs", "http", "https://me.example/mcp?key=hunter2", (("Authorization", "hunter2"),))


@pytest.mark.parametrize(
    ("choice", "served"),
    [
        (Choice(), {"get", "delete_all"}),
        (Choice(deny=("delete_*",)), {"get"}),
        (Choice(allow=("delete_*",), deny=("delete_all",)), set()),
        (Choice(allow=()), set()),
        (Choice(allow=("GET",)), set()),
    ],
)
def test_deny_wins(choice: Choice, served: set[str]) -> None:
    assert {name for name in ("get", "delete_all") if choice.takes(name)} == served


@pytest.mark.parametrize("turned", [False, True])
def test_the_most_specific_glob_counts_in_any_order(turned: bool) -> None:
    globs = (("*", "a"), ("search_*", "b"), ("search_b*", "c"), ("search_[x]", "d"), ("search_bugs", "e"))
    of = ByGlob("z", tuple(reversed(globs)) if turned else globs).of
    assert [of(name) for name in ("get", "search_a", "search_b", "search_x", "search_bugs")] == [*"abcde"]
    assert ByGlob("z", globs[1:]).of("get") == "z"


def test_of_equally_specific_globs_the_later_one_counts() -> None:
    assert ByGlob("z", (("a*", "first"), ("*b", "second"))).of("ab") == "second"


def test_a_narrow_glob_never_takes_a_scope_away() -> None:
    scopes = Scopes((("*", frozenset({"bugs"})), ("update_*", frozenset({"bugs.write"})), ("update_all", frozenset())))
    assert scopes.of("get") == {"bugs"}
    assert scopes.of("update_all") == {"bugs", "bugs.write"}
    assert (bool(scopes), bool(Scopes()), bool(Scopes((("*", frozenset()),)))) == (True, False, False)


FILES = ("file:*",)


@pytest.mark.parametrize(
    ("options", "judges"),
    [
        ({}, False),
        ({"resources": Choice(("*", "file:*"))}, False),
        ({"resources": Choice(deny=("*",))}, False),
        ({"resources": Choice(deny=("delete_*", "old"))}, False),
        ({"scopes": Scopes((("*", frozenset({"bugs"})), ("update_*", frozenset({"bugs.write"}))))}, False),
        ({"tools": Choice(FILES), "prompts": Choice(FILES)}, False),
        ({"resources": Choice(FILES)}, True),
        ({"resources": Choice(())}, True),
        ({"resources": Choice(deny=FILES)}, True),
        ({"scopes": Scopes((("*secret*", frozenset({"admin"})),))}, True),
    ],
)
def test_unlisted_resources_are_served_unless_a_rule_is_about_some_of_them(
    options: dict[str, Any], judges: bool
) -> None:
    definition = replace(BUGS, **options)
    assert (definition.judges_resources, definition.serves_unlisted) == (judges, not judges)
    assert replace(definition, unlisted=True).serves_unlisted
    assert not replace(definition, unlisted=False).serves_unlisted


def test_dots_in_a_text_that_is_no_uri_do_not_lead_out_of_what_is_allowed() -> None:
    definition = replace(BUGS, resources=Choice(("public/*",)))
    texts = ("public/a", "public/../secret", "public/..%2Fsecret", "public/../secret:a")
    assert [definition.serves_resource(text) for text in texts] == [True, False, False, False]


def test_a_resource_that_cannot_be_judged_is_served_only_where_all_are_alike() -> None:
    alike = replace(BUGS, scopes=Scopes((("*", frozenset({"bugs"})),)))
    assert alike.serves_resource(None)
    assert alike.scopes_of_resource(None) == {"bugs"}
    for rule in (Choice(FILES), Choice(deny=FILES), Choice(deny=("*",))):
        assert not replace(BUGS, resources=rule).serves_resource(None)


def test_an_identity_is_that_of_transport_address_and_kind_of_credential() -> None:
    same = replace(BUGS, name="other", prefix="o", headers=(), timeout_seconds=1)
    assert (same.identity == BUGS.identity, same == BUGS) == (True, False)
    others = [replace(BUGS, url="https://a"), replace(BUGS, credentials=Credentials("none"))]
    assert len({definition.identity for definition in (BUGS, *others)}) == 3


def test_the_text_of_a_definition_has_no_secret() -> None:
    secret = Credentials("client_credentials", "https://a", "me", "hunter2")
    definition = replace(BUGS, credentials=secret, proxy="http://me:hunter2@proxy")
    assert "hunter2" not in repr(definition) + definition.place
    assert definition.place == "https://me.example/mcp"
