"""Pure: what servers may make of a canonical URI that they read carelessly.

Parsers agree on a canonical URI, but a server may decode it several times, or use only its host and path. A rule that
forbids or protects a resource must hold for each of these readings. They are compared in a reduced form, which has no
case, no unseen characters, no doubled slashes and no dot segments: `scheme:/host/path`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

from gateway.protocol.ignorable import IGNORABLE
from gateway.protocol.uris.authority import DEFAULT_PORTS

__all__ = ["WILDCARDS", "inner_readings", "is_ambiguous", "outgrows", "readings", "reduced_glob", "with_bare_host"]

_MAX_ENCODINGS: Final = 3
"""How often a text may be percent-encoded. Some servers decode more than once."""
WILDCARDS: Final = {"*": "\ufdd0", "?": "\ufdd1"}
"""Stand for wildcards in a glob while it is reduced. No text may have these characters (Unicode, "noncharacters")."""
_OF_GLOBS: Final = str.maketrans(WILDCARDS)
_ONLY_WILDCARDS: Final = re.compile("[/\ufdd0\ufdd1]*")
_SET: Final = re.compile(r"\[!?\]?[^\]]*\]")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:", re.ASCII)
_DROPPED: Final = re.compile(f"[\x00-\x1f\x7f-\x9f{IGNORABLE}]")
_SLASHES: Final = re.compile(r"/+")
_PARAMETERS: Final = re.compile(r";[^/?#]*")
_BEHIND_PATH: Final = re.compile(r"[?#]")
_AUTHORITY: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)([^/?#{}]*)(?![^/?#])", re.ASCII)
_PORT: Final = re.compile(r":[0-9]*$", re.ASCII)
_ENDINGS: Final = re.compile("(?<![\ufdd0\ufdd1 .])[ .]+(?=/|$)")
"""Blanks and dots at the end of a segment, which Windows drops; in a glob, not behind a wildcard."""
_AMBIGUOUS: Final = re.compile(r"[/\\%;]|:\$|^[^.]{1,6}~[0-9]{1,6}(?:\.[^.]{0,3})?$")
"""May lead to other segments. On Windows, kinds of streams (`x::$DATA`) and short names (`SECRET~1`) do."""
_DOTS: Final = frozenset({".", ".."})


@lru_cache(maxsize=1)
def readings(uri: str) -> tuple[str, ...]:
    """Return the readings of a URI in reduced form: decoded, without query, user, port and so on.

    Each level of decoding is a reading. A slash at the end is there and is not. Several rules judge one URI in a row,
    so the last one is remembered.
    """
    found: dict[str, None] = {}
    for plain in _levels(uri):
        scheme, colon, rest = plain.partition(":")
        forms = [_resolved(plain)] if _SCHEME.match(uri) is None else []
        tail = ""
        if colon:
            path = _BEHIND_PATH.split(rest, maxsplit=1)[0]
            tail = rest[len(path) :]
            path = path.rstrip()
            for text in dict.fromkeys((rest, path, _PARAMETERS.sub("", rest), _PARAMETERS.sub("", path))):
                forms.extend(_placed(scheme, text))
        for form in _with_endings_dropped(forms):
            bare = form.rstrip("/")
            found.update(dict.fromkeys((bare, f"{bare}/", bare + tail, f"{bare}/{tail}")))
    return tuple(found)


def reduced_glob(glob: str) -> tuple[str, ...]:
    """Return the reduced forms of a glob, with `WILDCARDS` in it. A set of characters becomes one unknown character."""
    found: dict[str, None] = {}
    for plain in _levels(_SET.sub("?", glob).translate(_OF_GLOBS)):
        found[_SLASHES.sub("/", plain)] = None
        scheme, colon, rest = plain.partition(":")
        found.update(dict.fromkeys(_placed(scheme, rest, is_glob=True) if colon else [_resolved(plain)]))
    return _with_endings_dropped(found)


def inner_readings(uri: str) -> tuple[str, ...]:
    """Return a URI, and what it stands for if a server decodes it before it resolves dot segments.

    A rule that allows only resources in one place must hold for all of them. A server may take a query for a part of
    the path, and the host for its first segment.
    """
    scheme, _, text = uri.partition(":") if _SCHEME.match(uri) else ("", "", uri)
    found: dict[str, None] = {uri: None}
    for _ in range(_MAX_ENCODINGS + 1):
        plain = _PARAMETERS.sub("", _cleaned(text))
        for each in (plain, _BEHIND_PATH.split(plain, maxsplit=1)[0]):
            if not _DOTS.isdisjoint(each.split("/")):
                found.update(dict.fromkeys(_led_to(scheme, each)))
        if "%" not in text:
            break
        text = unquote(text)
    return tuple(found)


def is_ambiguous(uri: str) -> bool:
    """Return whether servers may find other segments in the path of a canonical URI than it has.

    It has an empty one or parameters, or decoding makes slashes, dot segments or further encodings of it. Or Windows
    reads a part of it in another way.
    """
    rest = uri.partition(":")[2] if _SCHEME.match(uri) else uri
    path = _BEHIND_PATH.split(rest, maxsplit=1)[0]
    path = path.removeprefix("//") if rest is not uri else path
    if "//" in path:
        return True
    segments = [_cleaned(unquote(segment)) for segment in path.split("/") if segment]
    return any(_AMBIGUOUS.search(segment) or not segment.strip(" .") for segment in segments)


def with_bare_host(uri: str) -> str:
    """Return a canonical URI as readers take it for whom an authority is a host: without case, user and port.

    It may also be a template. An authority with an expression stays as it is.
    """
    authority = _AUTHORITY.match(uri)
    return uri if authority is None else f"{authority[1]}{_host_of(authority[2]).casefold()}{uri[authority.end() :]}"


def outgrows(uri: str, characters: int) -> bool:
    """Return whether a server may read more than this number of characters in a URI: one can stand for eighteen."""
    for _ in range(_MAX_ENCODINGS + 1):
        if not uri.isascii() and len(unicodedata.normalize("NFKC", uri)) > characters:
            return True
        if "%" not in uri:
            return False
        uri = unquote(uri)
    return False


def _levels(text: str) -> tuple[str, ...]:
    """Return a text as it is and after each decoding, without case."""
    found: dict[str, None] = {}
    for _ in range(_MAX_ENCODINGS + 1):
        found[_folded(_cleaned(text))] = None
        if "%" not in text:
            break
        text = unquote(text)
    return tuple(found)


def _cleaned(text: str) -> str:
    return _DROPPED.sub("", unicodedata.normalize("NFKC", text)).replace("\\", "/").strip()


def _folded(text: str) -> str:
    """Return a text without case: the same for all that are equal in lower, upper or folded letters."""
    return _cleaned(text.upper().casefold()).replace("i\u0307", "i")


def _with_endings_dropped(forms: Iterable[str]) -> tuple[str, ...]:
    """Return reduced forms, and what Windows takes them for."""
    found = dict.fromkeys(forms)
    found.update(dict.fromkeys(_SLASHES.sub("/", _ENDINGS.sub("", form)) for form in tuple(found)))
    return tuple(found)


def _placed(scheme: str, text: str, *, is_glob: bool = False) -> Iterator[str]:
    """Yield what follows a scheme in the forms that servers use: with the whole authority, its host alone, without one.

    A part that a glob leaves open is not dropped: the glob would be about everything.
    """
    authority, path = _split(text)
    host = _host_of(authority)
    if not authority and not is_glob:  # a server may take the first segment for the host
        head, slash, rest = path.lstrip("/").partition("/")
        yield f"{scheme}:{_resolved(f'{_host_of(head)}{slash}{rest}')}"
    if is_glob and _ONLY_WILDCARDS.fullmatch(host):
        host = authority
    for place in dict.fromkeys((authority, host)):
        yield f"{scheme}:{_SLASHES.sub('/', f'/{place}{_resolved(path) if path else path}')}"
        if scheme not in DEFAULT_PORTS:
            yield f"{scheme}:{_resolved(f'{place}{path}')}"
    if scheme == "file" and not (is_glob and _ONLY_WILDCARDS.fullmatch(path)):
        yield f"{scheme}:{_resolved(path)}"


def _host_of(authority: str) -> str:
    """Return the host of an authority, without its user and port."""
    return _PORT.sub("", authority.rpartition("@")[2]).rstrip(".")


def _led_to(scheme: str, text: str) -> Iterator[str]:
    """Yield where dot segments of a decoded text lead: with a host that stays, and with one that does not."""
    if not scheme:
        yield _resolved(text).removeprefix("/")
        return
    if not text.startswith("//"):
        path = _resolved(text)
        yield f"{scheme}:{path if text.startswith('/') else path.removeprefix('/')}"
        return
    authority, path = _split(text)
    yield f"{scheme}://{authority}{_resolved(path)}"
    if scheme not in DEFAULT_PORTS:
        yield f"{scheme}:/{_resolved(f'{authority}{path}')}"


def _split(text: str) -> tuple[str, str]:
    """Return authority and path of what follows a scheme."""
    if not text.startswith("//"):
        return "", text
    authority, slash, path = text[2:].partition("/")
    return authority, slash + path


def _resolved(path: str) -> str:
    """Return a path from the root, without dot segments and doubled slashes."""
    kept: list[str] = []
    segments = path.split("/")
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment and segment != ".":
            kept.append(segment)
    if kept and (not segments[-1] or segments[-1] in _DOTS):
        kept.append("")
    return f"/{'/'.join(kept)}"
