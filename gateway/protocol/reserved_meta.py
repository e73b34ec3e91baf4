"""Pure: the names in `_meta` that only the protocol, or this gateway, may give a meaning (MCP "basic", `_meta`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_LABELS: Final = frozenset({"modelcontextprotocol", "mcp"})
_NAMES: Final = frozenset({"progressToken", "traceparent", "tracestate", "baggage"})
_OURS: Final = "dev.sealedgateway"
_USUAL: Final = "io.modelcontextprotocol/"
"""The prefix that every request has, which is known at once."""


def is_reserved(name: str) -> bool:
    """Return whether a name is reserved.

    The prefixes of 2026-07-28 have `modelcontextprotocol` or `mcp` as their second label. Earlier revisions also
    reserved them as the first one.
    """
    if name.startswith(_USUAL):
        return True
    if "/" not in name:
        return name in _NAMES
    prefix = name.partition("/")[0].lower()
    return prefix == _OURS or not _LABELS.isdisjoint(prefix.split(".")[:2])


def without_reserved(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a `_meta` that may be passed on, in either direction."""
    return {name: value for name, value in meta.items() if not is_reserved(name)}
