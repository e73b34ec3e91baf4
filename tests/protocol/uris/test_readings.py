"""Careless servers read other URIs in a canonical one: rules that forbid or protect something hold for those too."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.uris.globs import protects
from gateway.protocol.uris.readings import inner_readings, is_ambiguous, readings


@pytest.mark.parametrize(
    "uri",
    [
        *(
            "file:///%2573ecret/key",
            "file:///%252573ecret/key",
            "file:///open%2F..%2Fsecret/key",
            "file:///secret%5Ckey",
        ),
        *("file:///open%5C..%5Csecret/key", "file:///secret//key", "file:///secret/key?x=1", "file:///secret/key#f"),
        *(
            "file:///secret/key%3Fx",
            "file:///secret;v=1/key",
            "file:///open/..;x/secret/key",
            "file://anywhere/secret/key",
        ),
        *("file:///sec%2509ret/key", "file:///%EF%BD%93ecret/key", "file:///secret/key%20", "file://secret/key"),
        *("file:///open/x?/../../secret/key", "file:///secret/key;v=1?x", "file:///secret/key%20?x"),
    ],
)
def test_a_file_is_read_in_another_spelling(uri: str) -> None:
    assert "file:/secret/key" in readings(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "notes:secret/x",
        "notes:///secret/x",
        "notes://SECRET/x",
        "notes://u@secret:1/x",
        "notes://secret./x",
        "notes://secret//x",
        "notes://secret%5Cx",
        "notes:%5C%5Csecret%5Cx",
    ],
)
def test_host_and_path_of_a_scheme_are_one_text_to_many_servers(uri: str) -> None:
    assert "notes:/secret/x" in readings(uri)


@pytest.mark.parametrize(
    "uri",
    [
        *(
            "notes://pr\u0131vate/ink",
            "notes://pr%C4%B1vate/ink",
            "notes://PRİVATE/ink",
            "notes://pr%25C4%25B1vate/INK",
        ),
        *("notes://private/i%CC%87nk", "notes://private/in\u212a", "notes://priv%E2%80%8Cate/ink"),
        *("notes://private/%EF%BB%BFink", "notes://priv%C2%ADate/i%C2%85nk", "notes://private/in%F3%A0%81%ABk"),
        *("notes://private/ink.", "notes://private/ink%20..", "notes://private%20/ink", "notes://private/ink.?x"),
        *(
            "notes://private/ink.;v=1",
            "notes://private/ink%2E%2520/",
            "notes://private/.../ink",
            "notes://private/%20/ink",
        ),
    ],
)
def test_a_server_may_ignore_case_unseen_characters_and_the_ends_of_names(uri: str) -> None:
    assert "notes:/private/ink" in readings(uri)


@pytest.mark.slow
def test_letters_that_are_equal_in_some_case_have_one_reading() -> None:
    def simple(text: str) -> str:
        return "i" if text == "İ" else text.lower() if len(text.lower()) == 1 else text

    for code in range(sys.maxunicode + 1):
        if not 0xD800 <= code < 0xE000 and (letter := chr(code)).isalpha():
            others = {letter.lower(), letter.upper(), letter.casefold(), letter.swapcase(), simple(letter)}
            assert {readings(f"x:{other}") for other in others} == {readings(f"x:{letter}")}, hex(code)


@pytest.mark.parametrize(
    ("glob", "uri", "is_about"),
    [
        ("file:///c:/secret./*", "file:///c:/secret/x", True),
        ("file:///c:/secret/*", "file:///c:/secret%20./x", True),
        ("file:///c:/*.", "file:///c:/x.", True),
        ("file:///c:/*.", "file:///c:/x", False),
        ("file:///c:/?.", "file:///c:/x", False),
        ("notes://pr\u0131vate/*", "notes://PRIVATE/x", True),
        ("notes://admin/*", "notes://adm/x", False),
    ],
)
def test_a_glob_is_about_names_with_other_ends_and_letters(glob: str, uri: str, is_about: bool) -> None:
    assert protects(glob, readings(uri)) is is_about


@pytest.mark.parametrize("uri", ["notes:secret/x", "notes:/secret/x", "notes://secret/x", "notes:///secret/x"])
def test_the_number_of_slashes_behind_a_scheme_does_not_count(uri: str) -> None:
    assert readings(uri) == ("notes:/secret/x", "notes:/secret/x/")


def test_each_level_of_decoding_is_a_reading() -> None:
    found = readings("notes://x/..%2Fsecret%2F5%252F..%252F..%252Fy")
    assert {"notes:/secret/5%2f..%2f..%2fy", "notes:/x/y"} <= set(found)


def test_a_web_page_keeps_its_host() -> None:
    assert readings("https://h/x") == ("https:/h/x", "https:/h/x/")
    assert {"https:/h/x", "https:/user@h:8443/x?y"} <= set(readings("https://user@h:8443/x?y"))
    assert "https:/secret" not in readings("https://h/..%2Fsecret")


def test_a_text_that_is_no_uri_is_read_as_a_path() -> None:
    assert set(readings("../secret/%2e/key")) == {"/secret/%2e/key", "/secret/%2e/key/", "/secret/key", "/secret/key/"}
    assert readings("notes") == readings("/notes") == ("/notes", "/notes/")
    assert "/secret:key" in readings("open/../secret:key")


@pytest.mark.parametrize(
    "uri",
    [
        *("notes://a/..%2Fb", "notes://a/b%5Cc", "notes://a/100%25", "notes://a//b", "notes:a//b", "notes://a/b;v=1"),
        *("notes://a/%EF%BC%8E%EF%BC%8E/b", "notes://a/%EF%BC%8Fb", "notes://a%2Fb", "notes://a/b%3Bc", "//secret/x"),
        *("a/../b", "a%2Fb", "notes://a/..%20/b", "notes://a/.../b", "notes://a/.%20./b", "notes://a/%20/b"),
        *(
            "notes://a/.%E2%80%8C./b",
            "file:///c:/x::$DATA",
            "file:///c:/a:$I30:$INDEX_ALLOCATION/b",
            "file:///SECRET~1/b",
        ),
    ],
)
def test_servers_may_find_other_segments_in_a_path(uri: str) -> None:
    assert is_ambiguous(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "notes://a/b/",
        "notes:///a",
        "https://h:1/a%20b?c=%2F..%2F;//",
        "notes:a",
        "/a",
        "a b",
        "file:///%C3%A9",
        "notes://a/b.c",
        "notes://a/b.",
        "notes://a/~b",
    ],
)
def test_most_paths_have_the_same_segments_everywhere(uri: str) -> None:
    assert not is_ambiguous(uri)


@pytest.mark.parametrize(
    ("uri", "inner"),
    [
        ("file:///open/..%2Fsecret", "file:///secret"),
        ("file:///open/%252e%252e/secret", "file:///secret"),
        ("file:///open/..;x/secret", "file:///secret"),
        ("https://h/open/..%2f..%2Fsecret", "https://h/secret"),
        ("notes:open/..%2Fsecret", "notes:secret"),
        ("notes://open/..%2Fsecret", "notes://secret"),
        ("file:///open/..%2Fsecret?/../../open/x", "file:///secret"),
        ("file:///open/x#/../../secret", "file:///secret"),
        ("file:///open/a%20b;c", "file:///open/a%20b;c"),
        ("file:///open/a..b", "file:///open/a..b"),
        ("open/../secret", "secret"),
        ("open/..%2Fsecret", "secret"),
        ("open/../secret:x", "secret:x"),
        ("open/a b", "open/a b"),
    ],
)
def test_encoded_dot_segments_lead_out_of_a_place(uri: str, inner: str) -> None:
    assert inner in inner_readings(uri)


@given(st.text(max_size=60))
def test_every_text_has_a_few_readings(text: str) -> None:
    assert 2 <= len(readings(text)) < 200
    assert inner_readings(text)[0] == text
