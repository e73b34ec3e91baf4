"""Pure: globs of the operator, which are compared with canonical URIs, but may be written in another form."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate
from functools import lru_cache
from typing import Final

from gateway.protocol.uris.canonical import canonical_listed, problem_of, with_normal_encodings
from gateway.protocol.uris.readings import WILDCARDS, reduced_glob

_WILDCARD: Final = re.compile(r"[*?\[]")
_OF_URIS: Final = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*)?[:*?\[]", re.ASCII)
_WORD: Final = "zqzq"
"""Stands for what follows the literal text; every part of a URI may contain it."""
_ADDRESS: Final = re.compile(r"[/@]\[[0-9A-Fa-f.]*:")
_BEHIND_PORT: Final = re.compile(r"(//[^/?#]*:[0-9]*)$")
_LITERAL: Final = re.compile(r"[*?\[]")
_RESTORED: Final = {ord(mark): wildcard for wildcard, mark in WILDCARDS.items()}


def tells_uris_apart(glob: str) -> bool:
    """Return whether a glob may match some URIs but not others. `update_*` matches none: a scheme has no underscore."""
    return bool(glob.strip("*")) and _OF_URIS.match(glob) is not None


@lru_cache(maxsize=4096)
def globs_of_uris(glob: str) -> tuple[str, ...]:
    """Return a glob, and the same with its literal beginning in canonical form: `FILE:/a/*` means `file:///a/*`."""
    wildcard = _WILDCARD.search(glob)
    head, tail = (glob, "") if wildcard is None else (glob[: wildcard.start()], glob[wildcard.start() :])
    if ":" not in head:
        start: str | None = head.lower() if tail else head  # the beginning of a scheme
    elif tail:
        whole = canonical_listed(head + _WORD) or ""
        start, found, _ = whole.rpartition(_WORD)
        start = start if found else None
    else:
        start = canonical_listed(head)
    return tuple(dict.fromkeys((glob, glob if start is None else start + with_normal_encodings(tail))))


def beginnings_of_uris(glob: str) -> tuple[str, ...]:
    """Return the literal text with which the URIs begin that a glob matches, in each form of the glob."""
    return tuple(_WILDCARD.split(each, maxsplit=1)[0] for each in globs_of_uris(glob))


def problem_of_glob(glob: str) -> str | None:
    """Return why a glob that forbids or protects would miss URIs, and what to write instead; None if it does not."""
    if _ADDRESS.search(glob):
        return "has an address in brackets, which are a set of characters in a glob; write [[] for the first bracket"
    head, *rest = _WILDCARD.split(glob, maxsplit=1)
    word = _WORD if rest else ""  # stands for the first wildcard
    whole = head + word
    form = canonical_listed(whole)
    if ":" not in head or (form is not None and word in form):
        return None
    if rest and _BEHIND_PORT.search(head):
        return f"has a wildcard right behind its port; write {head.rstrip(':')}/*, with a slash before the wildcard"
    problem = problem_of(whole) or "ends with a blank"
    return f"{problem}; write the text before the first wildcard in canonical form, such as file:///secret/*"


def protects(glob: str, readings: Iterable[str]) -> bool:
    """Return whether a glob that forbids or protects is about one of the readings of a URI, see `readings`."""
    pattern = _reduced_pattern(glob)
    return any(pattern.match(reading) for reading in readings)


@lru_cache(maxsize=4096)
def _reduced_pattern(glob: str) -> re.Pattern[str]:
    """Return what matches the readings that a glob is about: it is reduced as they are."""
    forms = dict.fromkeys(form for each in globs_of_uris(glob) for form in reduced_glob(each))
    globs = (_LITERAL.sub(r"[\g<0>]", form).translate(_RESTORED) for form in forms)
    return re.compile("|".join(translate(each) for each in globs))
