"""Globs of the operator match canonical URIs, in whatever spelling they are written."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from gateway.protocol.uris.globs import globs_of_uris, tells_uris_apart


@pytest.mark.parametrize(
    ("glob", "uri"),
    [
        ("FILE:/secret/*", "file:///secret/a"),
        ("file:secret/*", "file:///secret/a"),
        ("https://INTRA:443/secret*", "https://intra/secret"),
        ("https://intra", "https://intra/"),
        ("https://in*", "https://intra/"),
        ("HTT*", "https://intra/"),
        ("file:///my files/*", "file:///my%20files/a"),
        ("notes://é/*", "notes://%C3%A9/x"),
        ("*%2fx%2d*", "notes://a%2Fx-y"),
        ("https://h:*", "https://h:8443/"),
        ("notes://[ab]/*", "notes://a/x"),
        ("file:*", "file://host/x"),
        ("*", "file:///"),
    ],
)
def test_a_glob_is_compared_in_its_canonical_form_too(glob: str, uri: str) -> None:
    assert any(fnmatchcase(uri, each) for each in globs_of_uris(glob))
    assert globs_of_uris(glob)[0] == glob


@pytest.mark.parametrize("glob", ["https://h:9*", "https://[::*", "file:///a\\b*", "notes://*x"])
def test_a_glob_whose_beginning_has_no_canonical_form_matches_no_more_than_it_says(glob: str) -> None:
    assert not any(fnmatchcase("file:///other", each) for each in globs_of_uris(glob))


@pytest.mark.parametrize("glob", ["memo:*", "file:///a", "*secret*", "f*", "?", "[a-z]*", "a+b:*", "docs*"])
def test_some_globs_match_one_uri_but_not_another(glob: str) -> None:
    assert tells_uris_apart(glob)


@pytest.mark.parametrize("glob", ["*", "**", "update_*", "delete_all", "search", "1*", "my notes*"])
def test_globs_of_names_match_all_uris_or_none(glob: str) -> None:
    assert not tells_uris_apart(glob)
