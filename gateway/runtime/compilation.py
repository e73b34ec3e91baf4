"""Whether the hot path runs compiled or interpreted, which nothing else shows; see docs/run/compiled.md."""

from __future__ import annotations

import importlib.util
from importlib.machinery import ExtensionFileLoader
from typing import Final

ALWAYS_COMPILED: Final = "gateway.observability.counters"
"""A module that every compiled build compiles. It is looked for, not loaded."""


def is_compiled() -> bool:
    """Return whether this is a compiled build."""
    spec = importlib.util.find_spec(ALWAYS_COMPILED)
    return spec is not None and isinstance(spec.loader, ExtensionFileLoader)
