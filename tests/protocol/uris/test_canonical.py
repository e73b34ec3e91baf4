"""The canonical form of a URI: all spellings that parsers read alike have one, and no parser changes it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import example, given

from gateway.protocol.uris.canonical import (
    MAX_URI_CHARACTERS,
    NotCanonical,
    canonical,
    canonical_listed,
    problem_of,
)
from tests.protocol.uris.hostile import by_pydantic, by_urllib, hostile_uris

PAYROLL = "file:///secret/payroll"


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (PAYROLL, PAYROLL),
        ("file:/secret/payroll", PAYROLL),
        ("file:secret/payroll", PAYROLL),
        ("FILE:/secret/payroll", PAYROLL),
        ("file://localhost/secret/payroll", PAYROLL),
        ("file://LocalHost./secret/payroll", PAYROLL),
        ("file:///%73ecret/payroll", PAYROLL),
        ("file:///open/../secret/payroll", PAYROLL),
        ("file:///open/%2E%2e/secret/%2e/payroll", PAYROLL),
        ("file:///../../secret/payroll#", PAYROLL),
        ("file:", "file:///"),
        ("file://C:/x/../y", "file:///C:/y"),
        ("file:C:/x", "file:///C:/x"),
        ("file:///a/.", "file:///a/"),
        ("file:///a/b/..", "file:///a/"),
        ("file://Server/share", "file://server/share"),
        ("https://intra/secret", "https://intra/secret"),
        ("https://intra:443/secret", "https://intra/secret"),
        ("https://intra:0443/secret", "https://intra/secret"),
        ("https:/intra/secret", "https://intra/secret"),
        ("https:intra/secret", "https://intra/secret"),
        ("https://///INTRA./secret?#", "https://intra/secret"),
        ("https://%69ntra/secret", "https://intra/secret"),
        ("https://@intra:/secret", "https://intra/secret"),
        ("wss://h:443", "wss://h/"),
        ("ftp://h:21/x", "ftp://h/x"),
        ("http://h:443/", "http://h:443/"),
        ("http://h", "http://h/"),
        ("http://h?q='1'", "http://h/?q=%271%27"),
        ("http://u;v=w:p:q@h/", "http://u%3Bv%3Dw:p%3Aq@h/"),
        ("http://u:@h/", "http://u@h/"),
        ("http://127.0.0.1./", "http://127.0.0.1/"),
        ("http://[::FFFF:1.2.3.4]:080/", "http://[::ffff:102:304]/"),
        ("http://[1:0:0:2:0:0:0:3]/", "http://[1:0:0:2::3]/"),
        ("http://[0:1:2:3:4:5:6:7]/", "http://[0:1:2:3:4:5:6:7]/"),
        ("http://[1::]/", "http://[1::]/"),
        ("http://[1:0:0:2:3:0:0:4]/", "http://[1::2:3:0:0:4]/"),
        ("notes://Secret/X", "notes://Secret/X"),
        ("NOTES://secret/x", "notes://secret/x"),
        ("notes:/secret/x", "notes:///secret/x"),
        ("notes://h:080", "notes://h:80"),
        ("notes://h?x=1", "notes://h?x=1"),
        ("notes://José/x", "notes://Jos%C3%A9/x"),
        ("notes://a/%7e%3d%3D", "notes://a/~%3D%3D"),
        ("notes://h/%2541", "notes://h/%2541"),
        ("mailto:Ada@Example.com", "mailto:Ada@Example.com"),
        ("urn:isbn:1?#x", "urn:isbn:1#x"),
        ("my notes/é", "my notes/é"),
        ("a", "a"),
    ],
)
def test_all_spellings_of_a_uri_have_one_form(text: str, form: str) -> None:
    assert canonical(text) == form
    assert canonical(form) == form


@pytest.mark.parametrize(
    "text",
    [
        *(
            "file:///sec\tret/x",
            " file:///x",
            "file:///x ",
            "fi\nle:///x",
            "\tfile:///x",
            "file:///x\r",
            "\x00file:///x",
        ),
        *("notes://sec\nret/x", "file:///public/.\t./secret", "file:///a\u3000b", "file:///a\x85b", "notes://a\xa0b"),
        *(
            "\ufefffile:///x",
            "\u3000file:///x",
            "a\\b",
            "file:\\x",
            "file:///a\\..\\secret",
            "https:\\\\intra",
            "\ud800",
        ),
        *(
            "file:///\ud800",
            "file:///%",
            "file:///%zz",
            "file:///%2",
            "file:///a|b",
            "file:///{x}",
            'file:///"',
            "file:///<",
        ),
        *(
            "file:///%00",
            "file:///a%0Ab",
            "file:///%7f",
            "file:///%c0%af",
            "file:///%ff",
            "file:///%ED%A0%80",
            "a#b\x01",
        ),
        *(
            "https://",
            "https:",
            "https:///",
            "https://:443/",
            "https://u@/",
            "https://a..b/",
            "https://./",
            "https://ü/",
        ),
        *(
            "https://%C3%BC/",
            "https://a。b/",
            "https://a%2Fb/",
            "https://\uff49ntra/",
            "https://h:65536/",
            "https://h:x/",
        ),
        *(
            "https://h:-1/",
            "https://h:1:2/",
            f"https://h:{'9' * 5000}/",
            "https://127.1/",
            "https://0x7f.1/",
            "https://1.2.3.4.5/",
        ),
        *(
            "https://0177.0.0.1/",
            "https://2130706433/",
            "https://a.0x/",
            "https://1.2.3.256/",
            "https://[::1/",
            "https://::1]/",
        ),
        *(
            "file:///C:/../x",
            "file:///a/c:/..",
            "https://[1.2.3.4]/",
            "https://[fe80::1%25eth0]/",
            "https://[v1.a]/",
            "https://[::1]x/",
            "https://a@b@c/",
        ),
        *(
            "file://u@h/x",
            "file://h:80/x",
            "file:////secret/x",
            "file://h//x",
            "https://[u]@h/",
            "file://h/a/..//x",
            "file:///a/..//x",
            "notes:////x",
            "notes:/.//x",
            "notes://",
        ),
        *("notes:a/../b", "notes:.", "notes://[/", "notes://a]/", "notes://u@/x", "notes://:1/x", "https://h/#a#b"),
        *("rtsp:x", "git:a/b", "file://h/C:/x", "file://h/c:", "file:////../x", "notes:////../x"),
        *("https://[::1]80/", "notes://[::1]80/"),
    ],
)
def test_what_readers_understand_differently_is_refused(text: str) -> None:
    with pytest.raises(NotCanonical):
        canonical(text)
    problem = problem_of(text)
    assert problem is not None
    assert len(problem) < 200, "a message does not repeat the URI"


def test_a_text_that_is_too_long_is_refused_before_anything_else() -> None:
    longest = f"notes:{'a' * (MAX_URI_CHARACTERS - 6)}"
    assert canonical(longest) == longest
    for text in (f"{longest}a", f"http://h/{'%61' * 4000}", "a" * (MAX_URI_CHARACTERS + 1)):
        assert problem_of(text) == f"has {len(text)} characters; the limit is 8192"


@pytest.mark.parametrize("decodings", [1, 2])
@pytest.mark.parametrize("start", ["file:///", "file:///a?", "a text "])
def test_a_uri_that_stands_for_more_characters_than_one_may_have_is_refused(decodings: int, start: str) -> None:
    letter = "\ufdfa"  # its compatibility form (NFKC) has eighteen characters
    encoded = letter
    for _ in range(decodings):
        encoded = quote(encoded, safe="")
    most = (MAX_URI_CHARACTERS - len(start)) // 18
    assert canonical(start + encoded * most)
    assert problem_of(start + encoded * (most + 1)) == "stands for more than 8192 characters"
    assert canonical_listed(start + encoded * (most + 1)) is None
    assert "when it is encoded" in str(problem_of(f"notes:{'é' * 4000}"))


@given(hostile_uris())
@example("notes:///x")
@example("http://h/?'")
@example("http://a!b/")
@example("file:///C:")
def test_no_parser_changes_a_canonical_form_or_reads_another_one_in_a_text(text: str) -> None:
    try:
        form = canonical(text)
    except NotCanonical:
        return
    assert canonical(form) == form
    assert by_pydantic(form) in (None, form)
    for parse in (by_pydantic, by_urllib):
        for given_text in (text, form):
            parsed = parse(given_text)
            assert parsed is None or canonical(parsed) == form, parse


@given(hostile_uris())
@example("file:///my files/a")
def test_a_listed_text_that_has_a_canonical_form_has_the_one_that_parsers_read(text: str) -> None:
    form = canonical_listed(text)
    parsed = by_pydantic(text)
    if form is not None and parsed is not None:
        assert canonical_listed(parsed) == form


def test_only_listed_texts_may_contain_blanks_and_other_characters_that_uris_cannot_have() -> None:
    assert canonical_listed('file:///my files/<a>|"b"') == "file:///my%20files/%3Ca%3E%7C%22b%22"
    assert canonical_listed("file:///a\tb") is None
    assert canonical_listed("file:///a ") is None
    assert canonical_listed("file:///a\\b") is None
    assert canonical_listed("https://a b/") is None


def cost_of(text: str) -> float:
    began = time.process_time()
    problem_of(text)
    return time.process_time() - began


@pytest.mark.parametrize(
    "make",
    [
        lambda size: "x:" + "%41" * size,
        lambda size: "file:///" + "%2e%2e/" * size,
        lambda size: "file:///" + "a/../" * size,
        lambda size: "file:///" + "/" * size,
        lambda size: "https://" + "a." * size,
        lambda size: "https://" + "0" * size,
        lambda size: "https://h:" + "0" * size,
        lambda size: "https://[" + ":" * size,
        lambda size: "notes://" + "@" * size,
        lambda size: "notes://" + "é" * size,
        lambda size: "notes:" + "\\" * size,
        lambda size: "%" * size,
    ],
)
def test_the_longest_uri_is_cheap(make: Callable[[int], str]) -> None:
    assert min(cost_of(make(MAX_URI_CHARACTERS)[:MAX_URI_CHARACTERS]) for _ in range(5)) < 0.5
    assert min(cost_of(make(1_000_000)) for _ in range(3)) < 0.005, "a longer one is not looked at"


def test_every_message_says_what_is_wrong() -> None:
    for text in ("file:///a b", "file:///a\\b", "file:///%", "https://h:x", "https://ü", "notes:..", " a"):
        assert re.match(r"(has|contains) ", str(problem_of(text)))
