"""Headers have one value, and only one way to read it."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.errors import HttpRefusal, InvalidRequest
from gateway.protocol.headers import Headers, check_content, decode_header_value
from tests.protocol.header_values import encode_header_value

header_text = st.text(st.characters(min_codepoint=0, max_codepoint=255))


def test_a_value_is_trimmed_of_spaces_and_tabs_only() -> None:
    headers = Headers([(b"mcp-name", b" \t foo bar\t "), (b"x", b"\x0bfoo\xa0")])
    assert headers.get(b"mcp-name") == "foo bar"
    assert headers.get(b"x") == "\x0bfoo\xa0"
    assert headers.get(b"absent") is None


@pytest.mark.parametrize(
    "name", [b"host", b"authorization", b"mcp-method", b"mcp-name", b"mcp-param-x", b"mcp-anything"]
)
@pytest.mark.parametrize("second", [b"a", b"b"])
def test_a_header_that_decides_may_come_only_once(name: bytes, second: bytes) -> None:
    with pytest.raises(InvalidRequest, match=name.decode()):
        Headers([(b"accept", b"x"), (name, b"a"), (b"accept", b"y"), (name, second)])


def test_other_headers_may_be_repeated_and_are_joined() -> None:
    headers = Headers([(b"accept", b"a"), (b"x", b"1"), (b"accept", b"b"), (b"mcp-name", b"n"), (b"accept", b"c")])
    assert headers.get(b"accept") == "a, b, c"
    assert headers.get(b"mcp-name") == "n"


def test_a_header_that_is_passed_on_may_come_only_once_and_has_only_visible_characters() -> None:
    headers = Headers(
        [(b"a", b"1"), (b"x", b"evil"), (b"b", b" a b\t"), (b"x", b"good"), (b"c", b"a\xff"), (b"e", b"")]
    )
    assert (headers.single(b"a"), headers.single(b"b"), headers.single(b"e")) == ("1", "a b", "")
    assert headers.single(b"missing") is None
    with pytest.raises(InvalidRequest, match="x must not be repeated"):
        headers.single(b"x")
    for value in (b"a\xff", b"\x7f", b"a\x1b", b"\xc3\xa9", b"a\x00b"):
        with pytest.raises(InvalidRequest, match="c must have only visible ASCII"):
            Headers([(b"c", value)]).single(b"c")
    same = Headers([(b"x", b"1"), (b"x", b"1")], {b"x": b"1"})
    with pytest.raises(InvalidRequest, match="x must not be repeated"):
        same.single(b"x")


@pytest.mark.parametrize(
    "content_type",
    [
        b"application/json",
        b"Application/JSON",
        b" application/json\t",
        b"application/json; charset=utf-8",
        b'application/json;charset="UTF-8"',
        b"application/json; profile=x; charset=Utf-8",
        b"application/json;",
    ],
)
@pytest.mark.parametrize("encoding", [None, b"identity", b"Identity", b""])
def test_plain_json_is_accepted(content_type: bytes, encoding: bytes | None) -> None:
    raw = [(b"content-type", content_type)]
    check_content(Headers(raw if encoding is None else [*raw, (b"content-encoding", encoding)]))


@pytest.mark.parametrize(
    "raw",
    [
        [],
        [(b"content-type", b"")],
        [(b"content-type", b"text/json")],
        [(b"content-type", b"application/jsonp")],
        [(b"content-type", b"application/json-seq")],
        [(b"content-type", b"application/json; charset=latin-1")],
        [(b"content-type", b"application/json; charset=utf-16")],
        [(b"content-type", b"application/json; charset=")],
        [(b"content-type", b"application/json"), (b"content-type", b"application/json")],
        [(b"content-type", b"application/json"), (b"content-encoding", b"gzip")],
        [(b"content-type", b"application/json"), (b"content-encoding", b"identity, gzip")],
        [(b"content-type", b"application/json"), (b"content-encoding", b"identity"), (b"content-encoding", b"br")],
    ],
)
def test_any_other_content_is_415(raw: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(HttpRefusal) as caught:
        check_content(Headers(raw))
    assert caught.value.status == 415
    assert caught.value.headers


@pytest.mark.parametrize("codings", [b"gzip, chunked", b"chunked, chunked", b"identity", b""])
def test_a_transfer_coding_beside_chunks_is_501(codings: bytes) -> None:
    plain = [(b"content-type", b"application/json")]
    check_content(Headers([*plain, (b"transfer-encoding", b"Chunked")]))
    with pytest.raises(HttpRefusal) as caught:
        check_content(Headers([*plain, (b"transfer-encoding", codings)]))
    assert caught.value.status == 501
    assert ("connection", "close") in caught.value.headers


SPEC_EXAMPLES = [
    ("us-west1", "us-west1"),
    ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
    (" padded ", "=?base64?IHBhZGRlZCA=?="),
    ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
    ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
]


@pytest.mark.parametrize(("text", "value"), SPEC_EXAMPLES)
def test_the_examples_of_the_specification_hold_both_ways(text: str, value: str) -> None:
    assert encode_header_value(text) == value
    assert decode_header_value(value) == text


@given(st.text())
@example("")
@example("\t")
@example("a\tb")
@example("=?base64?=")
@example("=?base64??=")
def test_every_text_survives_a_header(text: str) -> None:
    value = encode_header_value(text)
    sent = Headers([(b"mcp-name", value.encode("ascii"))]).get(b"mcp-name")
    assert sent == value
    assert decode_header_value(value) == text


@given(header_text | header_text.map(lambda text: f"=?base64?{text}?="))
def test_any_header_value_decodes_or_is_malformed(value: str) -> None:
    text = decode_header_value(value)
    if text is not None and text != value:
        assert encode_header_value(text) == value or encode_header_value(text) == text


@pytest.mark.parametrize(
    "value",
    [
        "=?base64?SGVsbG8?=",  # padding left out
        "=?base64?SGVsbG9=?=",  # bits beyond the end
        "=?base64?SGVs!!!bG8=?=",  # another alphabet
        "=?base64?SGVs bG8=?=",
        "=?base64?_-8=?=",  # URL alphabet
        "=?base64?/w==?=",  # not UTF-8
        "=?base64?7aCA?=",  # a lone surrogate
        "caf\xe9",
        "a\x00b",
        "a\x7fb",
    ],
)
def test_a_malformed_value_is_recognised(value: str) -> None:
    assert decode_header_value(value) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("=?base64?SGVsbG8=?=", "Hello"),
        ("=?base64??=", ""),
        ("SGVsbG8=", "SGVsbG8="),
        ("=?base64?SGVsbG8=", "=?base64?SGVsbG8="),
        ("=?BASE64?SGVsbG8=?=", "=?BASE64?SGVsbG8=?="),
        ("=?base64?=", "=?base64?="),
        ("a\tb", "a\tb"),
    ],
)
def test_only_the_exact_sentinel_is_decoded(value: str, text: str) -> None:
    assert decode_header_value(value) == text
