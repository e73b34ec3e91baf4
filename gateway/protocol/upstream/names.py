"""Pure: the names under which tools and prompts of upstreams are served.

A name is `<prefix>__<name>`, with only the characters and the length that the APIs of all large models accept. A prefix
contains no `_`, so the first `__` always ends it. A name that had to be changed ends in digits of its own digest.
So it is the same in every process, and two upstream names that look alike afterwards still differ.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

MAX_NAME_LENGTH: Final = 64
"""How many characters an exposed name may have."""

SEPARATOR: Final = "__"

_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]", re.ASCII)
_DIGEST_DIGITS: Final = 6
_CHANGED: Final = re.compile(rf"_[0-9a-f]{{{_DIGEST_DIGITS}}}\Z")


def exposed_name(prefix: str, name: str) -> str:
    """Return the name under which an upstream's tool or prompt is served.

    It has 1 to 64 characters of `A-Z a-z 0-9 _ -`. Every other character becomes `_`. If that or the length changes the
    name, it ends in `_` and six hex digits of the SHA-256 of the upstream's name. A prefix is 1 to 32 of `[a-z0-9-]`, a
    letter first; or "", which adds nothing.
    """
    start = prefix + SEPARATOR if prefix else ""
    room = MAX_NAME_LENGTH - len(start)
    allowed = _OTHER.sub("_", name)
    if allowed == name and 0 < len(name) <= room:
        return start + name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_DIGITS]
    return f"{start}{allowed[: room - _DIGEST_DIGITS - 1]}_{digest}"


def upstream_name(prefix: str, exposed: str) -> str | None:
    """Return the upstream's name for an exposed name that no list contains, or None if the prefix is another one.

    Only unchanged names can be read back. For a changed one this is a name that the upstream probably lacks, so look in
    its list first.
    """
    if _OTHER.search(exposed) or len(exposed) > MAX_NAME_LENGTH:
        return None
    start = prefix + SEPARATOR if prefix else ""
    return exposed[len(start) :] or None if exposed.startswith(start) else None


def may_be_changed(exposed: str) -> bool:
    """Return whether an exposed name looks like one that had to be changed, so only a list says what it stands for."""
    return _CHANGED.search(exposed) is not None
