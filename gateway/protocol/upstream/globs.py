"""Pure: patterns that choose among the names and URIs of an upstream."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase


def matches(globs: Iterable[str], name: str) -> bool:
    """Return whether a name matches one of the globs, which may contain `*`, `?` and `[…]`. Case counts."""
    return any(fnmatchcase(name, glob) for glob in globs)


def is_served(name: str, *, allow: Iterable[str], deny: Iterable[str]) -> bool:
    """Return whether a name is allowed and not denied; denying wins."""
    return not matches(deny, name) and matches(allow, name)
