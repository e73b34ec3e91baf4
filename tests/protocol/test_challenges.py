"""What `WWW-Authenticate` tells, and that nothing in it can be mistaken for something else."""

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


def test_a_request_without_a_token_is_told_no_error() -> None:
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


def test_scopes_are_told_once_each_in_one_order() -> None:
    told = parameters(Challenges().insufficient_scope("More is needed", ["write", "read", "write"]))
    assert told == {
        "realm": "mcp",
        "error": "insufficient_scope",
        "error_description": "More is needed",
        "scope": "read write",
    }
    assert parameters(Challenges().no_token({"read"}))["scope"] == "read"
    assert parameters(Challenges().invalid_token("No", {"read"}))["scope"] == "read"


@given(st.text(max_size=40), st.lists(st.text(max_size=10), max_size=3))
def test_whatever_is_told_reads_back_as_it_was_or_is_not_told(description: str, scopes: list[str]) -> None:
    try:
        challenge = Challenges(URL).insufficient_scope(description, scopes)
    except ValueError:
        return
    told = parameters(challenge)
    assert told["error_description"] == description
    assert told.get("scope", "").split(" ") == (sorted(set(scopes)) or [""])
    assert challenge.isprintable()
    assert challenge.isascii()


@pytest.mark.parametrize("text", ['a"b', "a\\b", "a\r\nb", "a\x00", "é", ""])
def test_text_that_could_end_its_quotes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cannot be told"):
        Challenges().invalid_token(text)
    with pytest.raises(ValueError, match="cannot be told"):
        Challenges(text)
    with pytest.raises(ValueError, match="is not a scope"):
        Challenges().no_token([text])


@pytest.mark.parametrize("scope", ["a b", " ", "a,b\n"])
def test_a_scope_is_one_word(scope: str) -> None:
    with pytest.raises(ValueError, match="is not a scope"):
        Challenges().no_token([scope])
