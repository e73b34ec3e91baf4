"""Hostile URIs, and what other parsers make of a text. Each returns None for a text that it refuses."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from hypothesis import strategies as st
from pydantic import AnyUrl, ValidationError

SCHEMES = st.sampled_from(
    ("file", "FILE", "https", "hTTp", "ws", "ftp", "notes", "Notes", "ui", "mailto", "x", "docs+file", "urn", "", "1x")
)
SLASHES = st.sampled_from(("", "/", "//", "///", "////", "\\\\", "/\\"))
AUTHORITIES = st.sampled_from(
    (
        *("", "", "intra", "INTRA", "intra.", "intra..", "localhost", "LOCALHOST.", "C:", "c%3a", "%69ntra", "h%2fx"),
        *(
            "intra:443",
            "intra:0443",
            "intra:80",
            "intra:",
            "intra:99999",
            "intra:8\u0660",
            ":80",
            "user@intra",
            "@intra",
        ),
        *("a;b:c:d@intra", ":@intra", "u@@intra", "127.1", "0x7f.1", "0177.0.0.1", "2130706433", "127.0.0.1", "1.2.3"),
        *(
            "[::1]",
            "[::FFFF:1.2.3.4]",
            "[1:0:0:2::3]",
            "[fe80::1%25e]",
            "[v1.x]",
            "[",
            "ünï",
            "xn--a",
            "a。b",
            "\uff49ntra",
        ),
        *("a_b", "a!b", "a%20b", "..", "."),
    )
)
SEGMENTS = st.sampled_from(
    (
        *(
            "",
            ".",
            "..",
            "%2e",
            "%2E%2e",
            ".%2e",
            "..;x",
            ";p=1",
            "secret",
            "%73ecret",
            "SECRET",
            "public",
            "a",
            "C:",
            "c|",
        ),
        *(
            "%2f",
            "%5c",
            "%252e%252e",
            "%2573ecret",
            "%c0%af",
            "%ff",
            "%00",
            "%0a",
            "%",
            "%zz",
            "a b",
            "a\tb",
            "\n",
            "é",
        ),
        *(
            "e\u0301",
            "\uff0e\uff0e",
            "。",
            "\u200b",
            "\ud800",
            "\x00",
            "\x7f",
            "\x85",
            "\u3000",
            "a'b",
            "[0]",
            "<",
            "{x}",
            "|",
            "^",
            "`",
        ),
    )
)
ENDS = st.sampled_from(("", "", "?", "#", "?#", "?x=1", "?x='1'", "?[]=%2541", "#f", "#a#b", "?a?b", " ", "\t", "\x00"))


@st.composite
def hostile_uris(draw: st.DrawFn) -> str:
    """Return something like a URI, built from parts that parsers read differently."""
    separator = draw(st.sampled_from(("/", "/", "/", "\\", "//")))
    path = separator.join(draw(st.lists(SEGMENTS, max_size=4)))
    parts = [
        draw(SCHEMES),
        ":",
        draw(SLASHES),
        draw(AUTHORITIES),
        draw(st.sampled_from(("/", "/", ""))),
        path,
        draw(ENDS),
    ]
    text = "".join(parts)
    if draw(st.booleans()):
        return text
    place = draw(st.integers(0, len(text)))
    return (
        text[:place]
        + draw(st.sampled_from(("\t", "\r\n", " ", "\\", "%2e", "\ufeff", "/", "@", ":", "%")))
        + text[place:]
    )


def by_pydantic(text: str) -> str | None:
    """Return what pydantic's `AnyUrl` makes of a text. It follows WHATWG's standard."""
    try:
        return str(AnyUrl(text))
    except (ValidationError, UnicodeEncodeError):
        return None


def by_urllib(text: str) -> str | None:
    """Return what Python's `urllib` makes of a text; None also if it finds no scheme."""
    try:
        parts = urlsplit(text)
        return urlunsplit(parts) if parts.scheme else None
    except ValueError:
        return None
