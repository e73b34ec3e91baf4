"""Pure: the text of a configuration file, as JSON with comments and trailing commas, or as TOML."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

MAX_DEPTH: Final = 32
"""How deep objects and lists may nest."""

_HALF_OF_A_PAIR: Final = re.compile("[\ud800-\udfff]")
# Each alternative matches without looking back, so that the time is linear for any text.
_TOKENS: Final = re.compile(
    r"""
    "(?:[^"\\\n]|\\.)*+"?          # a string, also one that does not end
  | //[^\n]*+                      # a comment up to the end of its line
  | /\*(?:[^*]|\*(?!/))*+(?:\*/)?  # a comment with an end, also one that lacks it
  | [ \t\r\n]++
  | [],}]                          # these decide what a comma before them means
  | [^]"/,} \t\r\n]++             # anything else
  | /
    """,
    re.VERBOSE,
)
_NOT_A_LINE_END: Final = re.compile(r"[^\n]")
_BEFORE_AN_ITEM: Final = frozenset("[{,:")


class DocumentError(Exception):
    """A file is not a document. The text says why and where, without quoting the file."""


class _Repeating(dict[str, Any]):
    """An object that repeats names."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        counts = Counter(name for name, _ in pairs)
        self.repeated = [name for name, count in counts.items() if count > 1]


def parse_json(text: str) -> Any:
    """Parse JSON with comments (`//`, `/* */`) and commas after the last item, as desktop clients write it.

    `repeated_names` finds the names that an object repeats.

    Raises:
        DocumentError: the text is something else, or nests too deep.
    """
    plain = "".join(_without_comments(text))
    try:
        value = json.loads(plain, object_pairs_hook=_object, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise DocumentError(f"not valid JSON at line {error.lineno}, column {error.colno}: {error.msg}") from None
    except ValueError:
        raise DocumentError("not valid JSON: a number is out of range") from None
    except RecursionError:
        raise DocumentError(_too_deep()) from None
    _refuse_odd(value)
    return value


def parse_toml(text: str) -> Any:
    """Parse TOML, or raise `DocumentError` if the text is something else or nests too deep."""
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\(at (line [0-9]+, column [0-9]+|end of document)\)\Z", str(error))
        raise DocumentError(f"not valid TOML at {place[1]}" if place else "not valid TOML") from None
    except ValueError:
        raise DocumentError("not valid TOML: a number or date is out of range") from None
    except RecursionError:
        raise DocumentError(_too_deep()) from None
    _refuse_odd(value)
    return value


def repeated_names(document: Any) -> Iterator[tuple[str, ...]]:
    """Yield the path of each name that its object repeats, in the order of the text."""
    waiting: list[tuple[tuple[str, ...], Any]] = [((), document)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, _Repeating):
            yield from ((*path, name) for name in value.repeated)
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        waiting += reversed([((*path, str(key)), item) for key, item in inner])


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    return plain if len(plain) == len(pairs) else _Repeating(pairs)


def _without_comments(text: str) -> Iterator[str]:
    """Yield the text with spaces for comments and last commas, so that places in it stay the same."""
    before = ""
    comma: list[str] = []
    for found in _TOKENS.finditer(text):
        part = found[0]
        if part[:2] in ("//", "/*"):
            if part[1] == "*" and (len(part) < len("/**/") or not part.endswith("*/")):
                raise DocumentError(f"not valid JSON: the comment at {_place(text, found.start())} has no end")
            part = _NOT_A_LINE_END.sub(" ", part)
        if part.isspace():
            if comma:
                comma.append(part)
            else:
                yield part
            continue
        if comma:
            yield from (" ", *comma[1:]) if part in ("]", "}") else comma
            comma = []
        if part == "," and before not in _BEFORE_AN_ITEM:
            comma = [part]
        else:
            yield part
        before = part[-1]
    yield from comma


def _place(text: str, position: int) -> str:
    line = text.count("\n", 0, position) + 1
    return f"line {line}, column {position - text.rfind(chr(10), 0, position)}"


def _refuse_constant(text: str) -> Any:
    raise DocumentError(f"not valid JSON: {text} is not a value")


def _refuse_odd(document: Any) -> None:
    """Refuse nesting that is too deep, and texts that are not Unicode."""
    waiting = [(document, 1)]
    while waiting:
        value, depth = waiting.pop()
        if isinstance(value, (dict, list)) and depth > MAX_DEPTH:
            raise DocumentError(_too_deep())
        texts = [value] if isinstance(value, str) else value if isinstance(value, dict) else []
        if any(map(_HALF_OF_A_PAIR.search, texts)):
            raise DocumentError(
                "a text has half of a surrogate pair (\\ud800 to \\udfff); write both halves or neither"
            )
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        waiting += [(item, depth + 1) for item in inner]


def _too_deep() -> str:
    return f"objects and lists nest deeper than {MAX_DEPTH}"
