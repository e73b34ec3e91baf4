"""Pure: what servers may make of a canonical URI that they read carelessly.

Parsers agree on a canonical URI, but a server may decode it several times, or use only its host and path. A rule that
forbids or protects a resource must hold for each of these readings.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

from gateway.protocol.uris.authority import DEFAULT_PORTS

_MAX_ENCODINGS: Final = 3
"""How often a text may be percent-encoded. Some servers decode more than once."""
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:", re.ASCII)
_DROPPED: Final = re.compile(r"[\x00-\x1f\x7f]")
_SEPARATORS: Final = re.compile(r"[/\\]+")
_PARAMETERS: Final = re.compile(r";[^/?#]*")
_BEHIND_PATH: Final = re.compile(r"[?#]")
_PORT: Final = re.compile(r":[0-9]*$", re.ASCII)
_DOTS: Final = frozenset({".", ".."})


def readings(uri: str) -> tuple[str, ...]:
    """Return a URI and its readings: decoded, without dot segments, host in lower case, without query and so on.

    The number of slashes behind a scheme does not count, nor does the host of a file: many servers cut off the scheme.
    """
    found: dict[str, None] = {uri: None}
    scheme, colon, rest = uri.partition(":")
    for text in (rest, _BEHIND_PATH.split(rest, maxsplit=1)[0]) if colon else ():
        plain = _decoded(text)
        for decoded in (plain, _BEHIND_PATH.split(plain, maxsplit=1)[0], _PARAMETERS.sub("", plain)):
            found.update(dict.fromkeys(_placed(scheme, decoded)))
    if _SCHEME.match(uri) is None:
        found[_resolved(_decoded(uri))] = None
    return tuple(found)


def inner_reading(uri: str) -> str:
    """Return what a URI stands for if a server decodes it before it resolves dot segments; itself without those.

    A rule that allows only resources in one place must hold for this reading too.
    """
    scheme, _, rest = uri.partition(":") if _SCHEME.match(uri) else ("", "", uri)
    plain = _PARAMETERS.sub("", _decoded(rest))
    if _DOTS.isdisjoint(_SEPARATORS.split(plain)):
        return uri
    if not scheme:
        return _resolved(plain)
    if not plain.startswith("//"):
        return f"{scheme}:{_resolved(plain)}"
    host, slash, path = plain[2:].partition("/")
    return f"{scheme}://{host}{_resolved(slash + path)}"


def _decoded(text: str) -> str:
    for _ in range(_MAX_ENCODINGS):
        text = unquote(text)
    return _DROPPED.sub("", unicodedata.normalize("NFKC", text)).replace("\\", "/").strip()


def _placed(scheme: str, text: str) -> Iterator[str]:
    """Yield a decoded URI in the forms that servers use: with its host and path alone, and without a host."""
    authority, path = "", text
    if text.startswith("//"):
        authority, slash, path = text[2:].partition("/")
        path = slash + path
    host = _PORT.sub("", authority.rpartition("@")[2]).lower().rstrip(".")
    path = _resolved(path)
    yield f"{scheme}://{host}{path}"
    if scheme == "file":
        yield f"file://{path}"
    elif scheme in DEFAULT_PORTS:
        return
    bare = f"{host}{path}".lstrip("/")
    yield from (f"{scheme}:{slashes}{bare}" for slashes in ("", "/", "//", "///"))


def _resolved(path: str) -> str:
    """Return a path without dot segments and doubled slashes."""
    kept: list[str] = []
    root = 1 if path.startswith("/") else 0
    for segment in _SEPARATORS.split(path):
        if segment == "..":
            del kept[max(root, len(kept) - 1) :]
        elif segment != ".":
            kept.append(segment)
    return "/".join(kept)
