"""Pure: the wire keys of a task's questions. No key is used twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

ROUND_MARK = "~"
"""Separates an author's key, which cannot contain it, from the number of times it was asked."""


def wire_keys(keys: Iterable[str], asked: Mapping[str, int]) -> dict[str, str]:
    """Name each question that is asked now.

    Return author's key → wire key: the key itself the first time, then `key~2`, `key~3` … `asked` is how often each was
    asked before.
    """
    return {key: f"{key}{ROUND_MARK}{asked[key] + 1}" if asked.get(key) else key for key in keys}
