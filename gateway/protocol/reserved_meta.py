"""Pure: the names in `_meta` that only the protocol, or this gateway, may give a meaning (MCP "basic", `_meta`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_RESERVED_LABELS: Final = frozenset({"modelcontextprotocol", "mcp"})
_OURS: Final = "dev.sealedgateway"


def is_reserved(name: str) -> bool:
    """Return whether a name is reserved: the second label of its prefix is the protocol's, or its prefix is ours."""
    prefix, slash, _ = name.partition("/")
    labels = prefix.lower().split(".")
    return bool(slash) and (prefix.lower() == _OURS or (len(labels) > 1 and labels[1] in _RESERVED_LABELS))


def without_reserved(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a `_meta` that are not reserved."""
    return {name: value for name, value in meta.items() if not is_reserved(name)}
