"""Regular expressions that JavaScript (with its flag `u`), Python and Rust can all read.

One scan judges a pattern, because compiling it may take long.
"""

from __future__ import annotations

import re
from typing import Final

from gateway.json_schema.costs import states

MAX_CHARACTERS: Final = 256
MAX_STATES: Final = 5000
MAX_STATES_AHEAD: Final = 100
"""How long a pattern may be: as it is written, with its counts written out, and the same for one with look-ahead. Rust
refuses patterns that take much memory."""

_ESCAPE: Final = r"\\(?:[tnrfv^$\\.*+?()\[\]{}|/]|x[0-9a-fA-F]{2}|u(?![dD][89a-fA-F])[0-9a-fA-F]{4})"
_SET: Final = r"\\[dDwWsS]"
_ONE: Final = rf"(?:[^\\\[\]-]|\\-|{_ESCAPE})"
"""One character of a class. A bracket within one, or a doubled sign, begins something else in Rust."""
_CLASS: Final = rf"\[(?!\^?\])\^?+-?+(?:{_SET}|{_ONE}(?:-{_ONE})?+)*+-?+\]"
_PIECE: Final = re.compile(
    rf"(?P<class>{_CLASS})|(?P<atom>[^\\^$*+?()\[\]{{}}|]|{_ESCAPE}|{_SET})|(?P<edge>[\^$|]|\\[bB])"
    r"|(?P<ahead>\(\?[=!])|(?P<open>\((?:\?:|(?!\?)))|(?P<close>\))"
    r"|(?P<count>(?:[*+?]|\{(?P<least>[0-9]{1,4})(?:,(?P<most>[0-9]{0,4}))?\})\??)",
    re.DOTALL,
)
_PLAIN: Final = re.compile(r"\^?[\w ]*\$?", re.ASCII)
_DOUBLED: Final = re.compile(r"&&|~~|\|\||--")
_RANGE: Final = re.compile(rf"{_SET}|({_ONE})(?:-({_ONE}))?", re.DOTALL)
_CONTROLS: Final = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}


def why_not_portable(pattern: str) -> str | None:
    """Return why some languages may refuse a pattern, None if all can read it."""
    if len(pattern) > MAX_CHARACTERS:
        return f"it has more than {MAX_CHARACTERS} characters"
    if _PLAIN.fullmatch(pattern):
        return None
    place = _unclear(pattern)
    if place is not None:
        return f"JavaScript, Python and Rust do not agree on {pattern[place : place + 10]!r}"
    length, _ = states(pattern)
    if length > (MAX_STATES_AHEAD if "(?=" in pattern or "(?!" in pattern else MAX_STATES):
        return "its counts are too high"
    return None


def _unclear(pattern: str) -> int | None:
    """Return where a pattern has the first piece that not all languages read."""
    groups: list[tuple[int, bool]] = []
    place, is_repeatable = 0, False
    while place < len(pattern):
        found = _PIECE.match(pattern, place)
        if found is None:
            return place
        kind = found.lastgroup
        if kind in ("open", "ahead"):
            groups.append((place, kind == "open"))
            is_repeatable = False
        elif kind == "close":
            if not groups:
                return place
            is_repeatable = groups.pop()[1]
        elif (kind == "count" and not (is_repeatable and _is_counted(found))) or (
            kind == "class" and not _is_clear(found[0])
        ):
            return place
        else:
            is_repeatable = kind in ("atom", "class")
        place = found.end()
    return groups[0][0] if groups else None


def _is_counted(found: re.Match[str]) -> bool:
    return not found["most"] or int(found["least"]) <= int(found["most"])


def _is_clear(text: str) -> bool:
    """Return whether a class has no doubled signs, and each range begins with the lower of its ends."""
    begin = 2 if text[1] == "^" else 1
    return _DOUBLED.search(text) is None and all(
        high is None or _code(low) <= _code(high)
        for low, high in (found.groups() for found in _RANGE.finditer(text, begin))
    )


def _code(one: str) -> int:
    """Return the code of a character as a class has it."""
    if one[0] != "\\":
        return ord(one)
    if one[1] in "xu":
        return int.from_bytes(bytes.fromhex(one[2:]))
    return _CONTROLS.get(one[1], ord(one[1]))
