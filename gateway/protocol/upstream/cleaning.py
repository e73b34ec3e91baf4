"""Pure: texts and `_meta` of upstreams, before anyone reads them.

Terminals obey control characters, models read what people do not see, and some parsers refuse lone surrogates. Names in
`_meta` that the protocol reserves would let an upstream speak in our name, or steer our client.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final

from gateway.protocol.reserved_meta import is_reserved, without_reserved
from gateway.protocol.upstream.unseen import without_unseen
from gateway.protocol.upstream.uris import must_be_encoded, own_uri
from gateway.protocol.versions import META_SERVER_INFO
from gateway.protocol.web_urls import web_url_problem

_LINE_BREAKS: Final = re.compile("\r\n?|[\x85\u2028\u2029]")
_BLANKS: Final = re.compile("[\t\n\r\x85\u2028\u2029]+")
_SURROGATES: Final = re.compile("[\ud800-\udfff]")

_PATTERN: Final = "pattern"
"""The keyword of JSON Schema whose text is a program."""

MAX_ICONS: Final = 16
"""How many icons an object may have: a client shows one of them, and each takes time to judge."""

MAX_SIZES: Final = 16
MAX_SIZE_BYTES: Final = 32
"""How many sizes an icon may have, such as `48x48`, and how long each may be."""
MAX_MIME_TYPE_BYTES: Final = 255

MAX_META_NAMES: Final = 1000
"""How many names a `_meta` may have: each takes time to judge. One with more is left out."""

_THEMES: Final = ("light", "dark")
_DATA_URI: Final = re.compile(r"data:[!-~]+", re.IGNORECASE)

_APP: Final = "ui"
_APP_PAGE: Final = "resourceUri"
_APP_PAGES: Final = ("ui/resourceUri", "openai/outputTemplate")
"""Other names of the same member: its older form (MCP Apps, "Resource Discovery"), and that of ChatGPT."""


class UncleanName(ValueError):
    """A name, which must stay as it is, has characters that nobody sees."""


def clean_text(text: str) -> str:
    """Return a text of several lines without unseen characters. Every kind of line break becomes a line feed."""
    return without_unseen(_LINE_BREAKS.sub("\n", without_surrogates(text)))


def clean_line(text: str) -> str:
    """Return a text of one line without unseen characters. Line breaks and tabs become spaces."""
    return without_unseen(_BLANKS.sub(" ", without_surrogates(text)))


def clean_inside(value: Any) -> Any:
    """Return a JSON value with all its texts clean, as several lines.

    Raises:
        UncleanName: the name of a member, or a `pattern`, has unseen characters, which must not be removed there:
            the value would mean something else.
    """
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [clean_inside(item) for item in value]
    if isinstance(value, dict):
        pattern = value.get(_PATTERN)
        if any(map(_is_unclean, value)) or (isinstance(pattern, str) and _is_unclean(pattern)):
            raise UncleanName
        return {name: clean_inside(item) for name, item in value.items()}
    return value


def _is_unclean(text: str) -> bool:
    return clean_text(text) != text


def short_text(text: str, max_bytes: int) -> str:
    """Return the start of a text of several lines as `clean_text` does. It does not look at the rest."""
    return _clipped(clean_text(text[:max_bytes]), max_bytes)


def short_line(text: str, max_bytes: int) -> str:
    """Return the start of a text of one line as `clean_line` does. It does not look at the rest."""
    return _clipped(clean_line(text[:max_bytes]), max_bytes)


def _clipped(text: str, max_bytes: int) -> str:
    """Return the start of a text that fits into `max_bytes` of UTF-8, ending between two characters."""
    if len(text) * 4 <= max_bytes:
        return text
    encoded = text.encode("utf-8", "replace")
    return text if len(encoded) <= max_bytes else encoded[:max_bytes].decode("utf-8", "ignore")


def without_surrogates(text: str) -> str:
    """Return a text with every lone surrogate replaced by U+FFFD."""
    return _SURROGATES.sub("\ufffd", text)


def without_surrogates_inside(value: Any) -> Any:
    """Return a JSON value with the lone surrogates of all its texts and names replaced."""
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, list):
        return [without_surrogates_inside(item) for item in value]
    if isinstance(value, dict):
        return {without_surrogates_inside(name): without_surrogates_inside(item) for name, item in value.items()}
    return value


def oversteps(holder: Mapping[str, Any]) -> bool:
    """Return whether the `_meta` of an object has too many names or reserved ones, but for the name of the server."""
    meta = holder.get("_meta")
    return isinstance(meta, Mapping) and (len(meta) > MAX_META_NAMES or any(_oversteps(name) for name in meta))


def _oversteps(name: str) -> bool:
    return name != META_SERVER_INFO and is_reserved(name)


def drop_reserved(holder: dict[str, Any]) -> None:
    """Remove reserved names from the `_meta` of a result or of parameters, in place, but not the name of the server.

    A `_meta` that is not an object, has too many names, or of which nothing is left, is removed.
    """
    meta = holder.get("_meta")
    if type(meta) is not dict or len(meta) > MAX_META_NAMES:
        holder.pop("_meta", None)
    elif kept := {name: meta[name] for name in meta if not _oversteps(name)}:
        holder["_meta"] = kept
    else:
        del holder["_meta"]


def clean_meta(prefix: str, meta: Any) -> dict[str, Any] | None:
    """Return `_meta` without reserved names, and with the URI of its app page as our clients know it.

    If it is not an object, has too many names, or nothing is left, return None.
    """
    if not isinstance(meta, Mapping) or len(meta) > MAX_META_NAMES:
        return None
    kept = without_reserved(meta)
    for name in _APP_PAGES:
        _own_page(prefix, kept, name)
    app = kept.get(_APP)
    if isinstance(app, Mapping) and _APP_PAGE in app:
        kept[_APP] = page = dict(app)
        _own_page(prefix, page, _APP_PAGE)
    return kept or None


def _own_page(prefix: str, holder: dict[str, Any], name: str) -> None:
    """Give the URI of an app page the prefix, or leave it out if it is not a URI."""
    uri = holder.get(name)
    if isinstance(uri, str):
        if prefix and must_be_encoded(uri):
            del holder[name]
        else:
            holder[name] = own_uri(prefix, uri)


def with_clean_meta(prefix: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with its `_meta` cleaned, or without one if nothing is left of it."""
    if "_meta" not in value:
        return dict(value)
    kept = {name: member for name, member in value.items() if name != "_meta"}
    meta = clean_meta(prefix, value["_meta"])
    if meta is not None:
        kept["_meta"] = meta
    return kept


def clean_icons(icons: Iterable[Any]) -> list[dict[str, Any]]:
    """Return icons without those that a client must not fetch, and without members of a wrong type.

    Those after the first `MAX_ICONS` are left out.

    The source of an icon is an http or https URL, or its own data (MCP "Icons").
    """
    first = islice(icons, MAX_ICONS)
    return [_clean_icon(icon) for icon in first if isinstance(icon, dict) and _has_source(icon.get("src"))]


def _has_source(source: Any) -> bool:
    return (isinstance(source, str) and bool(_DATA_URI.fullmatch(source))) or web_url_problem(source) is None


def _clean_icon(icon: dict[str, Any]) -> dict[str, Any]:
    kind, sizes = icon.get("mimeType"), icon.get("sizes")
    wanted: dict[str, Any] = {
        "mimeType": short_line(kind, MAX_MIME_TYPE_BYTES) if isinstance(kind, str) else None,
        "sizes": _clean_sizes(sizes) if isinstance(sizes, list) else None,
        "theme": icon.get("theme") if icon.get("theme") in _THEMES else None,
    }
    kept = {name: value for name, value in icon.items() if name not in wanted}
    return {**kept, **{name: value for name, value in wanted.items() if value is not None}}


def _clean_sizes(sizes: list[Any]) -> list[str]:
    return [short_line(size, MAX_SIZE_BYTES) for size in sizes[:MAX_SIZES] if isinstance(size, str)]
