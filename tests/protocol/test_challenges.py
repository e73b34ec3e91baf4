"""The content of `WWW-Authenticate`, and that no part of it can be mistaken for another."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.challenges import Challenges

URL = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp"
PARAMETER = re.compile(r'(\w+)="([^"\\]*)"(?:, |$)')


def parameters(challenge: str) -> dict[str, str]:
    scheme, _, rest = challenge.partition(" ")
    assert scheme == "Bearer"
    found = list(PARAMETER.finditer(rest))
    assert "".join(match[0] for match in found) == rest
    assert len({match[1] for match in found}) == len(found)
    return {match[1]: match[2] for match in found}


def test_a_request_without_a_token_gets_no_error_code() -> None:
    assert Challenges().no_token() == 'Bearer realm="mcp"'


def test_every_challenge_names_the_metadata_where_there_is_some() -> None:
    challenges = Challenges(URL)
    assert parameters(challenges.no_token()) == {"realm": "mcp", "resource_metadata": URL}
    assert parameters(challenges.invalid_token("No")) == {
        "realm": "mcp",
        "error": "invalid_token",
        "error_description": "No",
        "resource_metadata": URL,
    }
    assert parameters(challenges.insufficient_scope("No", ["a"]))["resource_metadata"] == URL


def test_scopes_are_named_once_each_in_one_order() -> None:
    told = parameters(Challenges().insufficient_scope("More is needed", ["write", "read", "write"]))
    assert told == {
        "realm": "mcp",
        "error": "insufficient_scope",
        "error_description": "More is needed",
        "scope": "read write",
    }


@pytest.mark.setting("login_scopes")
def test_a_client_without_a_good_token_learns_what_it_needs_to_log_in() -> None:
    challenges = Challenges(login_scopes=["write", "read", "write"])
    assert parameters(challenges.no_token())["scope"] == "read write"
    assert parameters(challenges.invalid_token("No"))["scope"] == "read write"
    assert parameters(challenges.insufficient_scope("No", ["admin"]))["scope"] == "admin"


def scopes_told(needed: list[str], granted: list[str]) -> list[str]:
    return parameters(Challenges(URL).insufficient_scope("No", needed, granted))["scope"].split(" ")


def test_a_client_that_needs_more_is_asked_to_keep_what_it_has() -> None:
    assert scopes_told(["write", "read"], ["read", "profile"]) == ["profile", "read", "write"]


def test_a_scope_that_no_resource_has_is_not_requested_again() -> None:
    assert scopes_told(["write"], ["offline_access", 'quo"te', "é", "", "two\nlines", "back\\slash"]) == ["write"]


def test_a_token_with_too_many_scopes_makes_no_head_that_proxies_refuse() -> None:
    many = [f"scope-{number:03}" for number in range(150)]
    assert scopes_told(["write"], many[:80]) == sorted([*many[:80], "write"])
    assert scopes_told(["write"], many) == ["write"]
    assert len(scopes_told(many, [])) == 150


@given(st.text(max_size=40), st.lists(st.text(max_size=10), max_size=3), st.lists(st.text(max_size=10), max_size=3))
def test_whatever_is_told_reads_back_as_it_was_or_is_not_told(
    description: str, scopes: list[str], granted: list[str]
) -> None:
    try:
        challenge = Challenges(URL).insufficient_scope(description, scopes, granted)
    except ValueError:
        return
    told = parameters(challenge)
    assert told["error_description"] == description
    named = told.get("scope", "").split(" ")
    assert set(scopes) <= set(named) <= {*scopes, *granted, ""}
    assert named == sorted(set(named))
    assert challenge.isprintable()
    assert challenge.isascii()


@pytest.mark.parametrize("text", ['a"b', "a\\b", "a\r\nb", "a\x00", "é", ""])
def test_text_that_could_end_its_quotes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cannot be sent"):
        Challenges().invalid_token(text)
    with pytest.raises(ValueError, match="cannot be sent"):
        Challenges(text)
    with pytest.raises(ValueError, match="is not a scope"):
        Challenges(login_scopes=[text])


@pytest.mark.parametrize("scope", ["a b", " ", "a,b\n"])
def test_a_scope_is_one_word(scope: str) -> None:
    with pytest.raises(ValueError, match="is not a scope"):
        Challenges().insufficient_scope("No", [scope])
