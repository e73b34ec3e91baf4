"""Pure: text and `_meta` of another server, as far as they are passed on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from gateway.protocol.versions import META_PROGRESS_TOKEN

RESERVED_LABELS: Final = frozenset({"modelcontextprotocol", "mcp"})
RESERVED_KEYS: Final = frozenset({META_PROGRESS_TOKEN, "traceparent", "tracestate", "baggage"})
"""Keys of `_meta` without a prefix that the protocol defines; they concern two neighbours only."""

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Control characters except tab and line feed, other line ends, and lone surrogates."""


def clean_text(text: str, max_bytes: int) -> str:
    """Return `text` without control characters, cut to `max_bytes` of UTF-8 at the end of a character.

    Tabs and line feeds stay.
    """
    head = _CONTROL.sub("", text[:max_bytes]) if len(text) > max_bytes else _CONTROL.sub("", text)
    if len(head) * 4 <= max_bytes:
        return head
    return head.encode()[:max_bytes].decode(errors="ignore")


def is_reserved(key: str) -> bool:
    """Return whether a key of `_meta` belongs to the protocol (2026-07-28 "basic", section "`_meta`").

    Earlier revisions reserved the same words as the first label of a prefix, so these are reserved too.
    """
    prefix, slash, _ = key.partition("/")
    if not slash:
        return key in RESERVED_KEYS
    return not RESERVED_LABELS.isdisjoint(prefix.lower().split(".", 2)[:2])


def without_reserved(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of `_meta` that may be passed on in either direction."""
    return {key: value for key, value in meta.items() if not is_reserved(key)}


def pass_meta(holder: dict[str, Any]) -> None:
    """Remove what may not be passed on from the `_meta` of a result or of parameters, in place.

    A `_meta` that is not an object, or has nothing left, is removed.
    """
    meta = holder.get("_meta")
    if type(meta) is dict and (kept := without_reserved(meta)):
        holder["_meta"] = kept
    else:
        holder.pop("_meta", None)
