"""URI templates: one reading of each uri, none of a misleading one, and no uri is slow to read."""

from __future__ import annotations

import re
from typing import Any, SupportsIndex
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.authoring.uri_templates import UriTemplate, is_template
from gateway.errors import AuthoringError


@pytest.mark.parametrize("text", ["a://{b}", "a://{+b}", "a://{", "a://}", "{b}"])
def test_braces_make_a_template(text: str) -> None:
    assert is_template(text)


@pytest.mark.parametrize("text", ["", "a://b", "a://b?c=%7B"])
def test_a_uri_without_braces_is_none(text: str) -> None:
    assert not is_template(text)


# --- what an author may write ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        ("test://template/{id}/data", ("id",)),
        ("file:///{+path}", ("path",)),
        ("{scheme}://{+_rest1}", ("scheme", "_rest1")),
        ("db://{table}/{row}.{format}", ("table", "row", "format")),
        ("x://a%20b/{id}?v=1#[!$&'()*+,;=@~]", ("id",)),
        ("docs://search{?q,limit}", ("q", "limit")),
        ("docs://{+path}{?q}", ("path", "q")),
    ],
)
def test_a_template_knows_its_variables_in_order(text: str, variables: tuple[str, ...]) -> None:
    template = UriTemplate(text)
    assert template.text == text
    assert template.variables == variables
    assert text in repr(template)


@pytest.mark.parametrize(
    "expression",
    ["", "+", "#a", ".a", "/a", ";a", "?", "?a*", "?a,", "?,a", "?a, b", "?a:3", "?+a",
     "?1", "&a", "=a", "|a", "a,b", "+a,b", "a*", "a:3", "++a", "a b", " a", "1a",
     "a.b", "a-b", "%41", "é", "a\n"],
)  # fmt: skip
def test_every_other_expression_of_rfc_6570_is_refused(expression: str) -> None:
    with pytest.raises(AuthoringError, match=r"neither \{name\} nor \{\+name\}"):
        UriTemplate(f"a://{{{expression}}}")


@pytest.mark.parametrize("text", ["", "a://b"])
def test_text_without_a_variable_is_not_a_template(text: str) -> None:
    with pytest.raises(AuthoringError, match=r"no \{variable\}"):
        UriTemplate(text)


@pytest.mark.parametrize(
    "literal",
    [" ", "é", '"', "<", "\\", "^", "`", "|", "\n", "\x00", "%", "%4", "%zz", "{", "}", "}{", "{{}", "\ud800"],
)
@pytest.mark.parametrize("where", ["a://b{0}/{{id}}", "a://{{id}}/{0}", "a://{{id}}{0}{{other}}"])
def test_text_that_no_uri_holds_is_refused(literal: str, where: str) -> None:
    with pytest.raises(AuthoringError, match="cannot be served"):
        UriTemplate(where.format(literal))


@pytest.mark.parametrize("text", ["a://{b}{c}", "a://{b}{+c}", "a://{+b}{c}/d", "{b}{c}"])
def test_two_variables_in_a_row_are_refused(text: str) -> None:
    with pytest.raises(AuthoringError, match="put text between"):
        UriTemplate(text)


@pytest.mark.parametrize("text", ["a://{b}/{b}", "a://{b}/{+b}"])
def test_a_variable_that_stands_twice_is_refused(text: str) -> None:
    with pytest.raises(AuthoringError, match="once"):
        UriTemplate(text)


@pytest.mark.parametrize(
    "text", ["a://b?c=1{?d}", "a://{b}?{?d}", "a://b#{?d}", "a://b{?d}#e", "a://b{?d}/e", "a://{?b}{?d}"]
)
def test_a_query_is_whole_and_last(text: str) -> None:
    with pytest.raises(AuthoringError, match=r"cannot be served"):
        UriTemplate(text)


@pytest.mark.parametrize("text", ["a://{b}{?b}", "a://b{?c,c}"])
def test_a_variable_of_a_query_that_stands_twice_is_refused(text: str) -> None:
    with pytest.raises(AuthoringError, match="once"):
        UriTemplate(text)


def test_a_second_variable_that_takes_slashes_is_refused() -> None:
    with pytest.raises(AuthoringError, match="only one"):
        UriTemplate("a://{+b}/c/{+d}")


@given(st.text("a{}+,*/%4é ", max_size=12))
def test_any_other_text_is_a_template_or_the_authors_mistake(text: str) -> None:
    try:
        template = UriTemplate(text)
    except AuthoringError as error:
        assert repr(text) in str(error)  # noqa: PT017
    else:
        assert re.fullmatch(r"([^{}]*\{\+?a+\})+[^{}]*", text)
        assert len(template.variables) == text.count("{")


# --- what a uri says ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "uri", "values"),
    [
        ("test://template/{id}/data", "test://template/123/data", {"id": "123"}),
        ("a://{b}", "a://x", {"b": "x"}),
        ("a://{b}", "a://x%20y", {"b": "x y"}),
        ("a://{b}", "a://caf%C3%A9", {"b": "café"}),
        ("a://{b}", "a://caf%c3%a9", {"b": "café"}),
        ("a://{b}", "a://café", {"b": "café"}),
        ("a://{b}", "a://x+y", {"b": "x+y"}),
        ("a://{b}", "a://100%25", {"b": "100%"}),
        ("a://{b}", "a://%2541", {"b": "%41"}),
        ("a://{b}", "a://who%3F%23", {"b": "who?#"}),
        ("a://{b}", "a://...", {"b": "..."}),
        ("a://{b}", "a://.env", {"b": ".env"}),
        ("a://{b}/{c}", "a://x/y", {"b": "x", "c": "y"}),
        ("a://{b}-{c}", "a://1-2-3", {"b": "1", "c": "2-3"}),
        ("a://{b}--{c}", "a://---x", {"b": "-", "c": "x"}),
        ("a://{b}.{c}", "a://x.tar.gz", {"b": "x", "c": "tar.gz"}),
        ("a://{b}?q={c}", "a://x?q=y", {"b": "x", "c": "y"}),
        ("a://{b}#{c}", "a://x#y", {"b": "x", "c": "y"}),
        ("file:///{+path}", "file:///src/a%20b.py", {"path": "src/a b.py"}),
        ("file:///{+path}", "file:///a?b#c", {"path": "a?b#c"}),
        ("file:///{+path}", "file:///a/b/", {"path": "a/b/"}),
        ("file:///{+path}", "file:///a/..b/.c/d..", {"path": "a/..b/.c/d.."}),
        ("file:///{+path}.{ext}", "file:///a.b/c.tar.gz", {"path": "a.b/c.tar", "ext": "gz"}),
        ("a://{b}/{+c}/{d}", "a://1/2/3/4", {"b": "1", "c": "2/3", "d": "4"}),
        ("a://{b}-{+c}-{d}", "a://1-2-3-4", {"b": "1", "c": "2-3", "d": "4"}),
        ("{scheme}://{+rest}", "http://a/b", {"scheme": "http", "rest": "a/b"}),
        ("a://{b}/x", "a://x/x", {"b": "x"}),
        ("a://b{?q,r}", "a://b", {}),
        ("a://b{?q,r}", "a://b?q=x", {"q": "x"}),
        ("a://b{?q,r}", "a://b?r=2&q=x%20y", {"r": "2", "q": "x y"}),
        ("a://b{?q,r}", "a://b?q=&r=a=b", {"q": "", "r": "a=b"}),
        ("a://b{?q}", "a://b?q=x+y", {"q": "x+y"}),
        ("a://b{?q}", "a://b?q=a/b?c", {"q": "a/b?c"}),
        ("a://b{?q}", "a://b?q=a%2Fb%26r%3d1", {"q": "a/b&r=1"}),
        ("a://{b}{?q}", "a://x?q=1", {"b": "x", "q": "1"}),
        ("a://{b}{?q}", "a://x", {"b": "x"}),
        ("file:///{+path}{?q}", "file:///a/b?q=c", {"path": "a/b", "q": "c"}),
    ],
)
def test_a_uri_gives_each_variable_its_decoded_value(text: str, uri: str, values: dict[str, str]) -> None:
    matched = UriTemplate(text).match(uri)
    assert matched == values
    assert list(matched or ()) == list(values)


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("test://template/{id}/data", "test://template//data"),
        ("test://template/{id}/data", "test://template/data"),
        ("test://template/{id}/data", "test://template/1/2/data"),
        ("test://template/{id}/data", "test://template/1/data/"),
        ("test://template/{id}/data", "TEST://template/1/data"),
        ("test://template/{id}/data", "xtest://template/1/data"),
        ("a://{b}", ""),
        ("a://{b}", "a://"),
        ("a://{b}", "a:/"),
        ("a://{b}", "a://x/"),
        ("a://{b}", "a://x/y"),
        ("a://{b}", "a://x?y"),
        ("a://{b}", "a://x#y"),
        ("a://{+b}", "a://"),
        ("a://{b}/{c}", "a://x"),
        ("a://{b}/{c}", "a://x/"),
        ("a://{b}/{c}", "a:///y"),
        ("a://{+b}/{c}", "a:///y"),
        ("a://{+b}/{c}", "a://x/"),
        ("aa{b}aa", "aaa"),
        ("aa{b}aa", "aaaa"),
        ("{b}a{c}", "a"),
        ("{b}a{+c}a{d}", "xaay"),
        ("{b}a{+c}a{d}", "xay"),
        ("{+b}a{c}bab", "bab"),
        ("{+b}a{c}a{d}!", "aba!"),
    ],
)
def test_a_uri_that_does_not_fit_matches_nothing(text: str, uri: str) -> None:
    assert UriTemplate(text).match(uri) is None


@pytest.mark.parametrize("raw", ["%", "%4", "%zz", "%%41", "x%2", "%ff", "%C3", "%C0%AF", "%ED%A0%80", "%41\ud800"])
@pytest.mark.parametrize("text", ["a://{b}", "a://{+b}"])
def test_a_broken_encoding_matches_nothing(text: str, raw: str) -> None:
    assert UriTemplate(text).match(f"a://{raw}") is None


def test_an_encoding_is_not_cut_in_two() -> None:
    assert UriTemplate("a://{b}2F{c}").match("a://x%2Fy") is None


@pytest.mark.parametrize("raw", ["x%2Fy", "%2F", "%2f", "..%2Fsecret", "%2Fetc%2Fpasswd", "secret%5Cx", "%5c"])
@pytest.mark.parametrize("text", ["a://{b}", "a://{+b}"])
def test_an_encoded_slash_or_backslash_is_not_a_value(text: str, raw: str) -> None:
    assert UriTemplate(text).match(f"a://{raw}") is None


@pytest.mark.parametrize("raw", ["/etc/hostname", "//etc", "secret//x", "x//"])
def test_a_path_is_not_absolute_and_has_no_empty_segment(raw: str) -> None:
    assert UriTemplate("a://{+b}").match(f"a://{raw}") is None


@pytest.mark.parametrize("raw", [".", "..", "%2E", "%2e%2E", ".%2e"])
@pytest.mark.parametrize("text", ["a://{b}", "a://{b}/c", "a://{+b}", "a://{+b}/c", "a://v{b}"])
def test_a_dot_segment_is_not_a_value(text: str, raw: str) -> None:
    assert UriTemplate(text).match(re.sub(r"\{.*\}", raw, text)) is None


@pytest.mark.parametrize("raw", ["../x", "x/..", "x/../y", "x/./y", "%2e%2e/x", "x%2F..%2Fy", "x/%2E%2E", "./x", "/.."])
def test_a_path_with_a_dot_segment_anywhere_is_not_a_value(raw: str) -> None:
    assert UriTemplate("a://{+b}").match(f"a://{raw}") is None


# --- every uri ---------------------------------------------------------------------------------------

encodable = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(encodable)
def test_what_was_expanded_is_read_back(value: str) -> None:
    """Expansion as in RFC 6570 sections 3.2.2 and 3.2.3; values that could mislead are not read back."""
    simple, reserved = quote(value, safe="-._~"), quote(value, safe=":/?#[]@!$&'()*+,;=-._~")
    misleading = bool({"/", "\\"} & set(value)) or value in {".", ".."}
    assert UriTemplate("a://{b}/c").match(f"a://{simple}/c") == (None if misleading else {"b": value})
    misleading = bool({".", ".."} & set(value.split("/"))) or "\\" in value or "//" in f"/{value}"
    assert UriTemplate("a://{+b}/c").match(f"a://{reserved}/c") == (None if misleading else {"b": value})


small_templates = st.lists(st.sampled_from(["a", "b", "/", "ab", "{x}", "{y}", "{+z}"]), min_size=1, max_size=6).map(
    "".join
)


@given(small_templates, st.text("ab/?", max_size=10))
@example("{+z}a{x}", "baba/b")
@example("{x}a/{y}", "aa/b")
@example("{x}ab{y}b", "aababb")
def test_a_uri_matches_exactly_if_there_is_a_way_to_read_it_so(text: str, uri: str) -> None:
    try:
        template = UriTemplate(text)
    except AuthoringError:
        return
    # The same template for a machine that tries everything.
    pattern = text.replace("?", r"\?")
    for name, expression in (("{x}", "[^/?#]+"), ("{y}", "[^/?#]+"), ("{+z}", "(?s:.+)")):
        pattern = pattern.replace(name, expression)
    values, spans = template.match(uri), template._spans(uri)
    if spans is not None and template._rest is not None and "//" in f"/{spans[template._rest]}":
        assert values is None, "an absolute path, or one with an empty segment"
        return
    assert (values is not None) == bool(re.fullmatch(pattern, uri))
    if values is not None:
        expanded = text
        for name, value in values.items():
            expanded = expanded.replace(f"{{{name}}}", value).replace(f"{{+{name}}}", value)
        assert expanded == uri


@given(st.sampled_from(["a://{b}", "a://{+b}", "{a}/{+b}/{c}", "{a}.{b}.{c}", "{a}%2F{b}"]), st.text(st.characters()))
@example("{a}%2F{b}", "%2F")
def test_no_text_at_all_does_anything_but_match_or_not(text: str, uri: str) -> None:
    for candidate in (uri, f"a://{uri}", f"{uri}/x/{uri}"):
        values = UriTemplate(text).match(candidate)
        assert values is None or all(values.values())


class Searched(str):
    """A uri that counts the characters it was searched through."""

    __slots__ = ("steps",)
    steps: int

    def find(self, sub: str, start: Any = 0, end: Any = None, /) -> int:
        found = super().find(sub, start, end)
        self.steps += (found + len(sub) if found >= 0 else len(self)) - start
        return found

    def rfind(self, sub: str, start: Any = 0, end: Any = None, /) -> int:
        found = super().rfind(sub, start, end)
        self.steps += end - (found if found >= 0 else start)
        return found

    def index(self, *_: SupportsIndex | str | None) -> int:
        raise AssertionError("not counted")

    split = partition = rpartition = rsplit = index  # type: ignore[assignment]


@pytest.mark.parametrize(
    "text",
    [
        "{a}-{b}-{c}-{d}-{e}!",
        "{a}-{b}-{+c}-{d}-{e}!",
        "{+a}--{b}--{c}",
        "{a}--{b}--{+c}",
        "{a}-/{b}-/{c}",
        "{a}!{b}!{c}",
    ],
)
@pytest.mark.parametrize("unit", ["-", "--x", "-/", "x", "-!"])
@pytest.mark.parametrize("end", ["", "!", "x"])
def test_a_hostile_uri_is_searched_through_once(text: str, unit: str, end: str) -> None:
    """A search that goes back over what it saw would need steps by the square of the length."""
    uri = Searched(unit * 2000 + end)
    uri.steps = 0
    UriTemplate(text).match(uri)
    assert uri.steps <= len(uri) + 20


@pytest.mark.parametrize(
    "uri",
    [
        "a://b?x=1",
        "a://b?q",
        "a://b?q=1&q=2",
        "a://b?q=1&",
        "a://b?&q=1",
        "a://b?=1",
        "a://b?Q=1",
        "a://b?q=1&amp;r=2",
        "a://b?q=1;r=2&x",
        "a://b?q=1#r",
        "a://b#?q=1",
        "a://b?q=%",
        "a://b?q=%ff",
        "a://b?q=..",
        "a://b?q=a/../b",
        "a://b?q=%2e%2E%2fb",
        "a://b?q=a%5Cb",
        "a://b/?q=1",
        "a://bc?q=1",
        "a://B?q=1",
    ],
)
def test_a_query_that_readers_could_take_for_another_does_not_match(uri: str) -> None:
    assert UriTemplate("a://b{?q,r}").match(uri) is None


@given(
    st.fixed_dictionaries(
        {"b": st.text("ab-é%/?&=#", min_size=1), "c": st.text("ab/?é", min_size=1)},
        optional={"q": st.text(), "r": st.text("&=?#/%+ é")},
    )
)
def test_what_is_expanded_is_matched_again_or_refused(values: dict[str, str]) -> None:
    template = UriTemplate("a://{b}/x/{+c}{?q,r}")
    try:
        uri = template.expand(values)
    except UnicodeEncodeError:
        return
    assert template.match(uri) in (values, None)
    plain = {"b": "x", "c": "y", **{name: "v" for name in values if name in "qr"}}
    assert template.match(template.expand(plain)) == plain
    assert template.expand({**plain, "q": None}) == template.expand({n: v for n, v in plain.items() if n != "q"})
