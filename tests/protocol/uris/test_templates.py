"""Templates of other servers: which URIs they make, and how their server writes those."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.uris.canonical import canonical_listed
from gateway.protocol.uris.templates import ForeignTemplate

VALUES = st.from_regex(r"[A-Za-z0-9._~-]{1,8}", fullmatch=True).filter(lambda value: value.strip("."))


@pytest.mark.parametrize(
    ("template", "uri", "text"),
    [
        ("memo://{area}/{id}", "memo://a/1", "memo://a/1"),
        ("file:/x/{id}", "file:///x/5", "file:/x/5"),
        ("FILE:///{+path}", "file:///a/b", "FILE:///a/b"),
        ("https://h:443/{x}", "https://h/7", "https://h:443/7"),
        ("https://h{?q,r}", "https://h/?q=1&r=2", "https://h?q=1&r=2"),
        ("https://h{?q}", "https://h/", "https://h"),
        ("https://h/a{?q}{&r}{#f}", "https://h/a?q=1&r=2#f", "https://h/a?q=1&r=2#f"),
        ("https://h{/path*}", "https://h/a/b/c", "https://h/a/b/c"),
        ("notes://{a}{b}", "notes://xy", "notes://xy"),
        ("notes://{a}-{b}/{+c}/{d}.{e}", "notes://1-2-3/4/5/6/7.8.9", "notes://1-2-3/4/5/6/7.8.9"),
        ("notes://x{;v}{.e}", "notes://x;v=1.txt", "notes://x;v=1.txt"),
        ("notes://José/{id}", "notes://Jos%C3%A9/1", "notes://José/1"),
        ("{scheme}://a", "b://a", "b://a"),
        ("my notes/{id}", "my notes/4", "my notes/4"),
        ("NOTES://fixed", "notes://fixed", "NOTES://fixed"),
        ("x://zq/{a}", "x://zq/b", "x://zq/b"),
        ("x://zq0qz/{a}", "x://zq0qz/b", "x://zq0qz/b"),
        ("http://h{+x}", "http://h/a/", "http://h/a/"),
        ("https://h{#f}", "https://h/#a", "https://h#a"),
        ("notes://x{#f}", "notes://x#a/b", "notes://x#a/b"),
        ("notes://x?q=1{&r}", "notes://x?q=1&r=a/b", "notes://x?q=1&r=a/b"),
        ("notes://{broken|}/a", "notes://x/a", "notes://x/a"),
    ],
)
def test_a_uri_is_sent_as_the_server_would_have_made_it(template: str, uri: str, text: str) -> None:
    assert ForeignTemplate(template).text_of(uri) == text


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("memo://{id}", "memo://a/1"),
        ("memo://{id}", "memo://a?x"),
        ("memo://{id}", "memo://a#x"),
        ("memo://{id}", "memos://a"),
        ("memo://{id}", "demo://a"),
        ("memo://{+id}", "demo://a"),
        ("memo://{id}.txt", "memo://a.pdf"),
        ("memo://{id}/end", "memo://a/ends"),
        ("memo://a{x}a", "memo://a"),
        ("memo://{a}/{b}", "memo://a"),
        ("memo://{+rest}/{id}", "memo://a"),
        ("memo://{+a}/m/{+b}", "memo://a/b"),
        ("memo://fixed", "memo://fixed/x"),
        ("notes://{a}-{b}/{+c}", "notes://1/2-3/4"),
    ],
)
def test_what_a_template_cannot_make_does_not_match(template: str, uri: str) -> None:
    assert ForeignTemplate(template).text_of(uri) is None


def test_the_canonical_form_keeps_expressions_as_they_are() -> None:
    assert ForeignTemplate("FILE:/%7ea/{+path}{?q*}").canonical == "file:///~a/{+path}{?q*}"
    for broken in (
        "https://h:{port}/",
        "file:///a/../{x}\t",
        "file:///{a\tb}",
        "file:///{}",
        "x:{a}/../b",
        "a\\{b}",
        "https://u{;p}@h/",
    ):
        assert ForeignTemplate(broken).canonical is None


@given(st.lists(VALUES, min_size=3, max_size=3))
def test_every_uri_that_a_template_makes_matches_it(values: list[str]) -> None:
    for text in (
        "FILE:/a/{0}/b-{1}/c{2}",
        "Notes://{0}/{1}?q={2}",
        "x:{0}:{1}:{2}",
        "my {0}/{1} {2}",
        "https://h:443/{+0}/{1}{/2}",
    ):
        made = text.format(*values) if "+" not in text else f"https://h:443/{values[0]}/{values[1]}/{values[2]}"
        template = ForeignTemplate(text.replace("{0}", "{a}").replace("{+0}", "{+a}"))
        form = canonical_listed(made)
        assert form is not None
        sent = template.text_of(form)
        assert sent is not None
        assert canonical_listed(sent) == form


@pytest.mark.parametrize(
    "template",
    ["{+a}a" * 2000, "{a}a" * 2000, "{a}" * 4000, f"{{+a}}{'a' * 4000}b{{+c}}", f"{{a}}{'a' * 4000}b{{+c}}b"],
)
def test_matching_takes_no_more_time_than_reading(template: str) -> None:
    matched, uri = ForeignTemplate(f"x:{template}"), f"x:{'a' * 8190}"
    costs = []
    for _ in range(3):
        began = time.process_time()
        matched.text_of(uri)
        costs.append(time.process_time() - began)
    assert min(costs) < 0.1
