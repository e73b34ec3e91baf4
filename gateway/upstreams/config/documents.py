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
_STRING: Final = r'"(?:[^"\\\n]|\\.)*+"?'  # also one that does not end
# These match without looking back, so that the time is linear for any text.
_STRING_OR_COMMENT: Final = re.compile(rf"{_STRING}|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(\*/)?")
_ITEM_AND_LAST_COMMA: Final = re.compile(rf"({_STRING}|[^\s\[{{,:])(?:(\s*+),(?=\s*+[\]}}]))?")
_NOT_A_LINE_END: Final = re.compile(r"[^\n]")


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
    # Places in the text stay the same.
    plain = _ITEM_AND_LAST_COMMA.sub(_without_comma, _STRING_OR_COMMENT.sub(_without_comment, text))
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
    for path, value in _values(document):
        if isinstance(value, _Repeating):
            yield from ((*path, name) for name in value.repeated)


def _values(document: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each value with its path, in the order of the text."""
    waiting: list[tuple[tuple[str, ...], Any]] = [((), document)]
    while waiting:
        path, value = waiting.pop()
        yield path, value
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        waiting += reversed([((*path, str(key)), item) for key, item in inner])


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    return plain if len(plain) == len(pairs) else _Repeating(pairs)


def _without_comment(found: re.Match[str]) -> str:
    if found[0].startswith('"'):
        return found[0]
    if found[0].startswith("/*") and found[1] is None:
        before = found.string[: found.start()]
        place = f"line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}"
        raise DocumentError(f"not valid JSON: the comment at {place} has no end")
    return _NOT_A_LINE_END.sub(" ", found[0])


def _without_comma(found: re.Match[str]) -> str:
    return found[0] if found[2] is None else f"{found[1]}{found[2]} "


def _refuse_constant(text: str) -> Any:
    raise DocumentError(f"not valid JSON: {text} is not a value")


def _refuse_odd(document: Any) -> None:
    """Refuse nesting that is too deep, and texts that are not Unicode."""
    for path, value in _values(document):
        if isinstance(value, (dict, list)) and len(path) >= MAX_DEPTH:
            raise DocumentError(_too_deep())
        texts = [value] if isinstance(value, str) else value if isinstance(value, dict) else []
        if any(map(_HALF_OF_A_PAIR.search, texts)):
            raise DocumentError(
                "a text has half of a surrogate pair (\\ud800 to \\udfff); write both halves or neither"
            )


def _too_deep() -> str:
    return f"objects and lists nest deeper than {MAX_DEPTH}"
