"""Configuration files as people write them: JSON with comments and last commas, or TOML."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.upstreams.config.documents import DocumentError, parse_json, parse_toml, repeated_names

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
COMMENT_TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
GAPS = st.lists(
    st.sampled_from(["", " ", "\n", "\t", "\r\n"])
    | COMMENT_TEXTS.map(lambda text: "//" + text.replace("\n", " ") + "\n")
    | COMMENT_TEXTS.map(lambda text: f"/*{text.replace('/', '')}*/"),
    max_size=2,
).map("".join)


@st.composite
def written(draw: st.DrawFn, value: Any) -> str:
    """Write a value with comments and spaces wherever they may be, and sometimes a comma after the last item."""

    def gap() -> str:
        return draw(GAPS)

    if isinstance(value, dict):
        items = [f"{gap()}{json.dumps(key)}{gap()}:{draw(written(item))}" for key, item in value.items()]
        start, end = "{", "}"
    elif isinstance(value, list):
        items = [draw(written(item)) for item in value]
        start, end = "[", "]"
    else:
        return f"{gap()}{json.dumps(value, ensure_ascii=draw(st.booleans()))}{gap()}"
    has_last: bool = draw(st.booleans())
    last = f",{gap()}" if items and has_last else ""
    return f"{gap()}{start}{','.join(items) or gap()}{last}{end}{gap()}"


@given(st.data(), VALUES)
def test_comments_and_last_commas_change_nothing(data: st.DataObject, value: Any) -> None:
    assert parse_json(data.draw(written(value))) == value


@given(st.text(st.sampled_from('{}[],:"\\/* \n1ae\u00e9\ud800')) | st.text())
def test_a_text_is_a_document_or_an_error(text: str) -> None:
    """Where it is plain JSON, it means what it means to every other parser."""
    try:
        plain: Any = json.loads(text)
    except ValueError:
        plain = DocumentError
    try:
        found = parse_json(text)
    except DocumentError:
        return
    if plain is not DocumentError:
        assert found == plain


@pytest.mark.parametrize(
    "text",
    [
        "[,]",
        "{,}",
        "[1,,]",
        "[1,,2]",
        '{"a":,}',
        "[1 2]",
        ",",
        "[1],",
        "1,",
        '"a", ',
        "[1] // x\n 2",
        "",
        "// only",
        "nul",
    ],
)
def test_a_comma_may_only_follow_an_item(text: str) -> None:
    with pytest.raises(DocumentError, match="not valid JSON"):
        parse_json(text)


def test_what_looks_like_a_comment_in_a_string_is_text() -> None:
    text = r'{"url": "https://a/*b*/", "quote": "\"//", /* "c": 1, */ "end": "\\",}'
    assert parse_json(text) == {"url": "https://a/*b*/", "quote": '"//', "end": "\\"}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{\n  // one\n  1\n}", "line 3, column 3"),
        ('{"a": /* x\n y */ nope}', "line 2, column 7"),
        ('{"a": 1,\n "b"}', "line 2, column 5"),
        ("[1, /* no end", "line 1, column 5"),
        ("[1]\n /*/", "line 2, column 2"),
    ],
)
def test_an_error_says_where(text: str, place: str) -> None:
    with pytest.raises(DocumentError, match=place):
        parse_json(text)


@pytest.mark.parametrize("text", ['{"a": NaN}', "[-Infinity]", f"[{'9' * 5000}]"])
def test_a_number_that_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(DocumentError):
        parse_json(text)


@pytest.mark.parametrize("text", [r'["\ud800"]', r'{"\udfff": 1}', "[" * 40 + "]" * 40, "[" * 200_000])
def test_half_a_surrogate_pair_and_deep_nesting_are_refused(text: str) -> None:
    with pytest.raises(DocumentError):
        parse_json(text)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["/*", '"', '\\"', "//", ",", "[", " ", "/", "/**", '"\\', "a", ", "])
def test_reading_takes_linear_time(part: str) -> None:
    started = time.process_time()
    with pytest.raises(DocumentError):
        parse_json('"x' * (part == '\\"') + part * (300_000 if part in {"/**", ", "} else 50_000))
    assert time.process_time() - started < 5


def test_repeated_names_are_found_with_their_path() -> None:
    document = parse_json('{"a": {"x": 1, "y": [{"z": 1, "z": 2}], "x": 2}, "b": 1, "b": 2, "b": 3}')
    assert list(repeated_names(document)) == [("b",), ("a", "x"), ("a", "y", "0", "z")]
    assert list(repeated_names(parse_json('{"a": {"b": 1}, "b": 1}'))) == []


def test_toml_is_read() -> None:
    assert parse_toml('[mcpServers.bugs]\nurl = "https://a"\n') == {"mcpServers": {"bugs": {"url": "https://a"}}}


@pytest.mark.parametrize(
    "text", ['secret = "hunter2', "a = 1\na = 2\nb", f"a = {'[' * 3000}", "a = 2020-13-45", "[a", "="]
)
def test_an_error_in_toml_says_where_and_quotes_nothing(text: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_toml(text)
    assert "hunter2" not in str(caught.value)


@given(st.text())
def test_any_text_is_toml_or_an_error(text: str) -> None:
    with contextlib.suppress(DocumentError):
        assert isinstance(parse_toml(text), dict)
