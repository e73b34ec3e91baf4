"""Pure: texts and `_meta` of upstreams, before anyone reads them.

Terminals obey control characters, and some parsers refuse lone surrogates. Names in `_meta` that the protocol reserves
would let an upstream speak in our name, or steer our client.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from gateway.protocol.reserved_meta import is_reserved, without_reserved
from gateway.protocol.upstream.uris import own_uri
from gateway.protocol.versions import META_SERVER_INFO

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""All control characters (Unicode category Cc) but tab and line feed."""
_LINE_BREAKS: Final = re.compile(r"\r\n?")
_BLANKS: Final = re.compile(r"[\t\n\r]+")
_SURROGATES: Final = re.compile("[\ud800-\udfff]")

_APP: Final = "ui"
_APP_PAGE: Final = "resourceUri"
_APP_PAGE_FLAT: Final = "ui/resourceUri"
"""The older form of the same member (MCP Apps, "Resource Discovery")."""


def clean_text(text: str) -> str:
    """Return a text of several lines without control characters. Every kind of line break becomes a line feed."""
    return _CONTROL.sub("", _LINE_BREAKS.sub("\n", without_surrogates(text)))


def clean_line(text: str) -> str:
    """Return a text of one line without control characters. Line breaks and tabs become spaces."""
    return _CONTROL.sub("", _BLANKS.sub(" ", without_surrogates(text)))


def clipped(text: str, max_bytes: int) -> str:
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
    """Return whether the `_meta` of an object has reserved names, apart from the one that every server writes."""
    meta = holder.get("_meta")
    return isinstance(meta, Mapping) and any(_oversteps(name) for name in meta)


def _oversteps(name: str) -> bool:
    return name != META_SERVER_INFO and is_reserved(name)


def drop_reserved(holder: dict[str, Any]) -> None:
    """Remove reserved names from the `_meta` of a result or of parameters, in place, but not the name of the server.

    A `_meta` that is not an object, or of which nothing is left, is removed.
    """
    meta = holder.get("_meta")
    if type(meta) is dict and (kept := {name: meta[name] for name in meta if not _oversteps(name)}):
        holder["_meta"] = kept
    else:
        holder.pop("_meta", None)


def clean_meta(prefix: str, meta: Any) -> dict[str, Any] | None:
    """Return `_meta` without reserved names, and with the URI of its app page as our clients know it.

    Returns:
        None if it is not an object, or nothing is left.
    """
    if not isinstance(meta, Mapping):
        return None
    kept = without_reserved(meta)
    if isinstance(kept.get(_APP_PAGE_FLAT), str):
        kept[_APP_PAGE_FLAT] = own_uri(prefix, kept[_APP_PAGE_FLAT])
    app = kept.get(_APP)
    if isinstance(app, Mapping) and isinstance(app.get(_APP_PAGE), str):
        kept[_APP] = {**app, _APP_PAGE: own_uri(prefix, app[_APP_PAGE])}
    return kept or None


def with_clean_meta(prefix: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with its `_meta` cleaned, or without one if nothing is left of it."""
    if "_meta" not in value:
        return dict(value)
    kept = {name: member for name, member in value.items() if name != "_meta"}
    meta = clean_meta(prefix, value["_meta"])
    if meta is not None:
        kept["_meta"] = meta
    return kept
