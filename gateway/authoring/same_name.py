"""Notices a tool module of the working directory that something installed has the name of."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from gateway.errors import ConfigurationError


def refuse_hidden_module(name: str) -> None:
    """Refuse the name of a tool module that means one file in the working directory and another one elsewhere.

    The working directory is the last that is looked in, so that nothing there hides a library. Whoever names a module
    of it means that one nevertheless.

    Raises:
        ConfigurationError: the name means two files; the message has both.
    """
    here = str(Path.cwd())
    top = name.partition(".")[0]
    own = PathFinder.find_spec(top, [here]) if here in sys.path else None
    other = _found(top)
    if own is None or own.origin is None or other is None or other.origin in (None, own.origin):
        return
    if top == "gateway" and name != top and _found(name) is not None:
        return  # such as the demo tools
    raise ConfigurationError(f"the tool module {name!r} is in {own.origin} and in {other.origin}; rename the first one")


def _found(name: str) -> ModuleSpec | None:
    """Return what importing a name would give."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded.__spec__
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
