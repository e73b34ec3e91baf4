"""Globs of the operator match canonical URIs, in whatever spelling they are written."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from gateway.protocol.uris.globs import globs_of_uris, problem_of_glob, protects, tells_uris_apart
from gateway.protocol.uris.readings import readings


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


@pytest.mark.parametrize(
    ("glob", "uri"),
    [
        ("file:///my%20docs/secret/*", "file:///my%20docs//secret/x"),
        ("file:///my docs/secret/*", "file:///My%20Docs%2Fsecret/x"),
        ("postgres://u@host:5432/secrets/*", "postgres://u@host:5432//secrets/schema"),
        ("postgres://u@host:5432/secrets/*", "postgres://host/secrets/schema"),
        ("https://intra:8443/secret*", "https://intra:8443/a%2F..%2Fsecret"),
        ("https://intra:8443/q?t=secret*", "https://intra:8443//q?t=secret"),
        ("notes://Private/*", "notes://PRIVATE/x"),
        ("notes://*/Private/*", "notes://a//private/x"),
        ("file:///secret/payroll", "file:///secret/payroll/"),
        ("notes://secret/", "notes://secret"),
        ("file:///lo\u0308hne/*", "file:///a/..%2Fl%C3%B6hne/x"),
        ("file:///o\ufb03ce/*", "file:///office/x"),
        ("file:///sec;ret/*", "file:///a%2F..%2Fsec;ret/x"),
        ("notes://x/secret/*", "notes://x/..%2Fsecret%2F5%252F..%252F..%252Fy"),
        ("secret/*", "/secret/x"),
        ("*/secret/*", "notes:SECRET/x"),
        ("*://secret/*", "notes:/SECRET/x"),
        ("notes://[ab]/x", "notes://A/x"),
        ("notes://[[]::1]:1/x", "notes://[::1]:1//x"),
        ("file://srv/secret/*", "file:///Secret/x"),
    ],
)
def test_a_glob_that_protects_is_reduced_as_the_readings_of_a_uri_are(glob: str, uri: str) -> None:
    assert protects(glob, readings(uri))


@pytest.mark.parametrize(
    ("glob", "uri"),
    [
        ("notes://secret/*", "notes://secrets/x"),
        ("file:///secret/payroll", "file:///secret/payrolls"),
        ("file://srv/*", "file:///x"),
        ("https://*:8443/x", "https://h/y"),
        ("*;v=1", "notes://a/b"),
        ("file:///a%2A/*", "file:///ab/x"),
    ],
)
def test_a_glob_that_protects_is_not_about_everything(glob: str, uri: str) -> None:
    assert not protects(glob, readings(uri))


@pytest.mark.parametrize(
    ("glob", "advice"),
    [
        ("https://INTRA:8080*", "write https://INTRA:8080/*, with a slash"),
        ("https://h:*", "write https://h/*"),
        ("NOTES:secret/../x*", "has . or .. in a path"),
        ("https://[::1]/x*", "write [[]"),
        ("file:///a\\b*", "write the text before the first wildcard in canonical form"),
        ("https://127.1/*", "has an address that is not written as four decimal numbers"),
    ],
)
def test_a_glob_that_would_miss_uris_is_a_mistake(glob: str, advice: str) -> None:
    assert advice in (problem_of_glob(glob) or "")


@pytest.mark.parametrize(
    "glob",
    ["*", "update_*", "file:*", "HTT*", "https://h:8080/*", "my files/a", "notes://[ab]/*", "file:///a"],
)
def test_other_globs_are_no_mistake(glob: str) -> None:
    assert problem_of_glob(glob) is None
