"""Pure: the canonical form of a URI, which every reader understands in the same way.

A rule about a URI holds only if the server reads the text as the rule does. So the gateway judges one form, and sends
that form. It is a fixed point of RFC 3986's normalisation (section 6.2.2) and of WHATWG's URL parser, which Node.js,
browsers and pydantic use: none of them would change it. A URI that cannot be brought into such a form is refused:

- control characters, blanks, backslashes and all other characters that a URI cannot have. WHATWG's parser drops or
  replaces some of them. Only letters beyond ASCII are percent-encoded instead;
- percent encodings of control characters, and of bytes that are not UTF-8;
- characters that stand for so many others that what a server reads is longer than a URI may be;
- hosts, ports and paths that readers resolve to different things.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote_to_bytes, uses_netloc

from gateway.protocol.uris.authority import DEFAULT_PORTS, NotCanonical, canonical_authority
from gateway.protocol.uris.readings import outgrows

__all__ = [
    "MAX_URI_CHARACTERS",
    "NOT_OF_URIS",
    "NotCanonical",
    "canonical",
    "canonical_listed",
    "problem_of",
    "with_normal_encodings",
]

MAX_URI_CHARACTERS: Final = 8192
"""How many characters a URI may have, as a client sends it, in its canonical form, and as servers may read it."""

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):", re.ASCII)
_BLANK: Final = re.compile(r"[\s\x00-\x20\x7f-\x9f]")
_BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7f]+")
NOT_OF_URIS: Final = re.compile(r"[^A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]|%(?![0-9A-Fa-f]{2})", re.ASCII)
"""Found in every text that is not of the characters of RFC 3986, and quickly not in a long one that is."""
_ENCODABLE: Final = re.compile(r'[ "<>^`{|}]')
"""The printable characters that a URI cannot have, without the backslash."""
_TRIPLET: Final = re.compile(r"%([0-9A-Fa-f]{2})", re.ASCII)
_ENCODED_CONTROL: Final = re.compile(r"%(?:[01][0-9A-F]|7F)")
_UNRESERVED: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_ENCODINGS: Final[Mapping[str, str]] = {
    f"{byte:02X}": chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in range(256)
}
"""What percent encodings become (RFC 3986 sections 6.2.2.1 and 6.2.2.2)."""
_DRIVE: Final = re.compile(r"[A-Za-z]:")
_DOTS: Final = frozenset({".", ".."})


def canonical(text: str) -> str:
    """Return the canonical form of a URI, or raise `NotCanonical`. Without a scheme, a printable text stays as is."""
    if len(text) > MAX_URI_CHARACTERS:
        raise NotCanonical(f"has {len(text)} characters; the limit is {MAX_URI_CHARACTERS}")
    if outgrows(text, MAX_URI_CHARACTERS):
        raise NotCanonical(f"stands for more than {MAX_URI_CHARACTERS} characters")
    if _SCHEME.match(text) is None:
        return _printable(text)
    scheme, _, rest = _encoded(text).partition(":")
    rest, _, fragment = rest.partition("#")
    if "#" in fragment:
        raise NotCanonical("has two #; percent-encode the second one")
    path, _, query = rest.partition("?")
    scheme = scheme.lower()
    if scheme in DEFAULT_PORTS:
        query = query.replace("'", "%27")  # as WHATWG's parser does for these schemes
    whole = f"{scheme}:{_hierarchy(scheme, path)}{'?' if query else ''}{query}{'#' if fragment else ''}{fragment}"
    if len(whole) > MAX_URI_CHARACTERS:
        raise NotCanonical(f"has {len(whole)} characters when it is encoded; the limit is {MAX_URI_CHARACTERS}")
    return whole


def canonical_listed(text: str) -> str | None:
    """Return the canonical form of a URI that its server lists, None if it has none.

    Such a text is sent as the server wrote it, so that servers find it that compare texts. Therefore blanks and
    characters such as `|` may be in it, but no blanks at its end; in the canonical form they are percent-encoded.
    """
    try:
        is_uri = _SCHEME.match(text) is not None and not text.endswith(" ")
        return canonical(_ENCODABLE.sub(_quoted, text) if is_uri else text)
    except NotCanonical:
        return None


def problem_of(text: str) -> str | None:
    """Return why a URI has no canonical form, as the end of a sentence that begins with it; None if it has one."""
    try:
        canonical(text)
    except NotCanonical as problem:
        return str(problem)
    return None


def with_normal_encodings(text: str) -> str:
    """Return a text whose percent encodings are in upper case, and without those that a URI does not need."""
    return _TRIPLET.sub(lambda triplet: _ENCODINGS[triplet[1].upper()], text)


def _quoted(match: re.Match[str]) -> str:
    return quote(match[0], safe="")


def _printable(text: str) -> str:
    """Return a text that is not a URI: no parser finds one in it, not even behind blanks."""
    if not text.isprintable() or text != text.strip() or "\\" in text:
        raise NotCanonical("has control characters, backslashes, or blanks at its ends")
    return text


def _encoded(text: str) -> str:
    """Return a URI in ASCII. Only characters are percent-encoded that need it, in upper case."""
    blank = _BLANK.search(text)
    if blank is not None:
        raise NotCanonical(f"contains {blank[0]!r}; percent-encode blanks, and remove control characters")
    try:
        text = text if text.isascii() else _BEYOND_ASCII.sub(_quoted, text)
    except UnicodeEncodeError:
        raise NotCanonical("contains half of a character") from None
    foreign = NOT_OF_URIS.search(text)
    if foreign is not None:
        raise NotCanonical(f"contains {foreign[0]!r}, which a URI cannot have; percent-encode it")
    if "%" not in text:
        return text
    text = with_normal_encodings(text)
    if _ENCODED_CONTROL.search(text):
        raise NotCanonical("contains an encoded control character")
    try:
        unquote_to_bytes(text).decode("utf-8")
    except UnicodeDecodeError:
        raise NotCanonical("contains encoded bytes that are not UTF-8") from None
    return text


def _hierarchy(scheme: str, text: str) -> str:
    """Return what stands between the scheme and the query: authority and path, or a path alone."""
    parts = _parts(scheme, text)
    if parts is None:
        return _opaque(scheme, text)
    path = parts[1]
    authority, whole = canonical_authority(scheme, parts[0]), _without_dots(path)
    if not authority and not whole:
        raise NotCanonical("has neither a host nor a path")
    if scheme == "file" and authority and _DRIVE.fullmatch(whole.split("/")[1] if whole else ""):
        raise NotCanonical("has a host before a drive")  # which some parsers drop
    # Some parsers read what follows as a host, or drop the empty part.
    if (not authority or scheme == "file") and (path.startswith("//") or whole.startswith("//")):
        raise NotCanonical("has an empty part at the start of its path")
    return f"//{authority}{whole}"


def _parts(scheme: str, text: str) -> tuple[str, str] | None:
    """Return authority and path; None if neither begins with a slash, so that all of it is one path."""
    if scheme == "file":
        return _of_file(text)
    if scheme in DEFAULT_PORTS:
        authority, _, path = text.lstrip("/").partition("/")
        return authority, f"/{path}"
    if text.startswith("//"):
        authority, slash, path = text[2:].partition("/")
        return authority, slash + path
    if text.startswith("/"):
        return "", text  # RFC 8089's short form; Python's urllib writes both forms alike
    return None


def _opaque(scheme: str, text: str) -> str:
    """Return a path without a leading slash, as it is."""
    if scheme in uses_netloc:
        raise NotCanonical("has a path without a leading slash")  # urllib would write one
    if not _DOTS.isdisjoint(text.split("/")):
        raise NotCanonical("has . or .. in a path without a leading slash")
    return text


def _of_file(text: str) -> tuple[str, str]:
    """Return authority and path of a `file:` URI. WHATWG's parser reads `file:x` and `file:/x` as `file:///x`."""
    if not text.startswith("//"):
        return "", f"/{text.removeprefix('/')}"
    authority, _, path = text[2:].partition("/")
    if _DRIVE.fullmatch(authority):  # the drive of `file://C:/x` is not a host
        return "", f"/{text[2:]}"
    return authority, f"/{path}"


def _without_dots(path: str) -> str:
    """Return a path without dot segments (RFC 3986 section 5.2.4). Parsers disagree on those behind a drive."""
    segments = path.split("/")[1:]
    if _DOTS.isdisjoint(segments):
        return path
    kept: list[str] = []
    for segment in segments:
        if segment == "..":
            if kept and _DRIVE.fullmatch(kept[-1]):
                raise NotCanonical("leads out of a drive")
            del kept[-1:]
        elif segment not in _DOTS:
            kept.append(segment)
    if segments[-1] in _DOTS:
        kept.append("")
    return f"/{'/'.join(kept)}"
