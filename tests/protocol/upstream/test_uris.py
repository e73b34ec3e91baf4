"""URIs of upstreams' resources: they come back as they were, whatever an upstream calls its resources."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.protocol.upstream.uris import own_template, own_uri, upstream_uri

PREFIXES = st.from_regex(r"[a-z][a-z0-9-]{0,31}", fullmatch=True)
URIS = st.from_regex(r"[A-Za-z][A-Za-z0-9+.-]{0,8}:[A-Za-z0-9/?#%:@._~-]{0,30}", fullmatch=True)
APPS = st.from_regex(r"[uU][iI]://[A-Za-z0-9.@:/?#-]{0,20}", fullmatch=True)
TEXTS = st.one_of(st.text(max_size=60), URIS, APPS)
VALID = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})*", re.ASCII)


@given(PREFIXES, TEXTS)
@example("docs", "x:a%20b")
@example("docs", "X:a")
@example("docs", "docs+x:a")
@example("docs", "ui:a")
@example("docs", "ui://")
@example("docs", "")
@example("docs", "%zz")
@example("docs", "file:///a b")
def test_every_text_comes_back_as_it_was(prefix: str, uri: str) -> None:
    exposed = own_uri(prefix, uri)
    assert VALID.fullmatch(exposed)
    assert upstream_uri(prefix, exposed) == uri


@given(TEXTS)
def test_no_prefix_changes_nothing(uri: str) -> None:
    assert own_uri("", uri) == uri
    assert upstream_uri("", uri) == uri
    assert own_template("", uri) == uri


@given(PREFIXES, TEXTS, TEXTS)
def test_two_resources_never_get_one_uri(prefix: str, one: str, other: str) -> None:
    if one != other:
        assert own_uri(prefix, one) != own_uri(prefix, other)


@given(PREFIXES, PREFIXES, TEXTS)
def test_a_uri_of_another_prefix_is_not_read(prefix: str, other: str, uri: str) -> None:
    if prefix != other:
        assert upstream_uri(other, own_uri(prefix, uri)) is None


@pytest.mark.parametrize(
    ("uri", "exposed"),
    [
        ("file:///a", "docs+file:///a"),
        ("HTTPS://h/A", "docs+HTTPS://h/A"),
        ("ui://app/page", "ui://docs.app/page"),
        ("notes", "docs+x:notes"),
        ("my notes/é", "docs+x:my%20notes%2F%C3%A9"),
        ("x:y", "docs+x:x%3Ay"),
    ],
)
def test_a_uri_shows_its_upstream(uri: str, exposed: str) -> None:
    assert own_uri("docs", uri) == exposed


@pytest.mark.parametrize("uri", ["DOCS+file:///a", "Docs+file:///a"])
def test_a_prefix_is_compared_without_case(uri: str) -> None:
    assert upstream_uri("docs", uri) == "file:///a"


def test_the_host_of_an_app_is_compared_without_case() -> None:
    assert upstream_uri("docs", "UI://Docs.app/page") == "UI://app/page"


@pytest.mark.parametrize(
    "uri", ["docs+", "docs+x:%", "docs+x:%zz", "docs+x:%ff", "docs:a", "docsx+file:///a", "ui://docs/a"]
)
def test_a_uri_that_nobody_was_given_is_not_read(uri: str) -> None:
    assert upstream_uri("docs", uri) is None


def test_a_lone_surrogate_becomes_a_question_mark() -> None:
    assert own_uri("docs", "a\ud800") == "docs+x:a%3F"


@given(PREFIXES, st.from_regex(r"[a-z0-9]{1,9}", fullmatch=True))
@example("docs", "x")
def test_a_uri_made_from_a_template_stands_for_the_upstreams_uri(prefix: str, value: str) -> None:
    for template in ("file:///{id}", "ui://app/{id}", "notes/{id}", "x:{id}", "my notes/{id}/end"):
        exposed = own_template(prefix, template).replace("{id}", value)
        assert upstream_uri(prefix, exposed) == template.replace("{id}", value)


def test_the_expressions_of_a_template_stay_as_they_are() -> None:
    assert own_template("docs", "file:///{+path}{?page,size}") == "docs+file:///{+path}{?page,size}"
    assert own_template("docs", "a b/{+path}") == "docs+x:a%20b%2F{+path}"
    assert own_template("docs", "{scheme}://a") == "docs+x:{scheme}%3A%2F%2Fa"
