"""Whether the hot path is compiled or interpreted, which is not visible otherwise; see docs/run/compiled.md."""

from __future__ import annotations

import importlib.util
from importlib.machinery import ExtensionFileLoader
from typing import Final

ALWAYS_COMPILED: Final = "gateway.observability.counters"
"""A module that is compiled in every compiled build. It is looked up, not loaded."""


def is_compiled() -> bool:
    """Return whether this is a compiled build."""
    spec = importlib.util.find_spec(ALWAYS_COMPILED)
    return spec is not None and isinstance(spec.loader, ExtensionFileLoader)
