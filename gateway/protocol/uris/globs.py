"""Pure: globs of the operator, which are compared with canonical URIs, but may be written in another form."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from gateway.protocol.uris.canonical import canonical_listed, with_normal_encodings

_WILDCARD: Final = re.compile(r"[*?\[]")
_OF_URIS: Final = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*)?[:*?\[]", re.ASCII)
_WORD: Final = "zqzq"
"""Stands for what follows the literal text; every part of a URI may contain it."""


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
