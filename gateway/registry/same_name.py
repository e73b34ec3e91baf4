"""Detects a tool module in the working directory that has the same name as an installed module."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from gateway.errors import ConfigurationError


def refuse_hidden_module(name: str) -> None:
    """Refuse the name of a tool module that exists both in the working directory and elsewhere.

    Python searches the working directory last, so that nothing there hides a library. But a user who names a module
    that exists there means that one.

    Raises:
        ConfigurationError: the name belongs to two files. The message names both.
    """
    here = str(Path.cwd())
    top = name.partition(".")[0]
    own = PathFinder.find_spec(top, [here]) if here in sys.path else None
    other = _found(top)
    if own is None or own.origin is None or other is None or other.origin in (None, own.origin):
        return
    if top == "gateway" and name != top and _found(name) is not None:
        return  # for example the demo tools
    raise ConfigurationError(
        f"the tool module {name!r} exists twice: {own.origin} and {other.origin}; rename the first one"
    )


def _found(name: str) -> ModuleSpec | None:
    """Return the spec of the module that importing a name would load, or None."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded.__spec__
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
