"""Opens texts that pydantic reads as JSON (`pydantic.Json`), so that the values in them can be counted before."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from pydantic_core import from_json

from gateway.errors import GatewayError, ParseError, TooManyValues
from gateway.protocol.strict_json import EXTRA_VALUES, MAX_DEPTH, MAX_VALUES, decode

_OPENED: Final = (str, list, dict)
_OUT_OF_RANGE: Final = r"-?(?:NaN|Inf|\d[\d.]*[eE]|\d{300})"
"""Numbers that pydantic reads and bodies may not have begin so."""

_MAY_BE_OPENED: Final = re.compile(rf'[\[{{" \t\n\r]|{_OUT_OF_RANGE}').match
"""JSON that may have more than one value, or such a number, begins so. JSON in a text may be a text again."""

_MAY_HAVE_TEXTS: Final = re.compile(rf'\\|"[ \t\n\r]*(?:[\[{{]|{_OUT_OF_RANGE})').search
"""JSON with a text that may be opened has an escape, or a bracket or such a number at the beginning of the text."""


MAX_TEXTS_IN_TEXTS: Final = 4
"""How many texts of JSON may be inside one another. Each level is read again."""

_OF_UNREADABLE: Final = 20
"""As how many further values a text counts that begins like JSON and is not: several parsers look at it."""


class UnreadableText(GatewayError):
    """A text has too many values, or JSON that two parsers could read differently."""


def opened(arguments: Mapping[str, Any], names: Collection[str]) -> Mapping[str, Any]:
    """Return arguments with the values of JSON texts in place of the texts, where some are read as JSON.

    The texts follow the rules of bodies, and all values of these arguments together are limited as those of a body. Any
    text that is JSON is opened, because the type alone says which ones will be read.

    Args:
        arguments: what the caller sent.
        names: the arguments in which texts are read as JSON.

    Raises:
        UnreadableText: a text could not be read at a cost in proportion. The message begins with the argument.
    """
    opening = _Opening()
    return {name: opening.of_argument(name, value) if name in names else value for name, value in arguments.items()}


class _Opening:
    def __init__(self) -> None:
        self._left = MAX_VALUES
        self._level = 0

    def of_argument(self, name: str, value: Any) -> Any:
        try:
            return self._of(value)
        except TooManyValues:
            raise UnreadableText(
                f"{name}: it has too many values, with those in its texts of JSON; send a part of them"
            ) from None
        except ParseError as error:
            problem = error.message.replace("The body", "a text of JSON", 1)
            raise UnreadableText(f"{name}: {problem}") from None

    def _of(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._of_text(value)
        if not isinstance(value, list | dict):
            return value
        self._count(len(value) + EXTRA_VALUES)
        if isinstance(value, list):
            return [self._of(each) if isinstance(each, _OPENED) else each for each in value] if value else value
        inner = {name: self._of(each) for name, each in value.items() if isinstance(each, _OPENED)}
        keys = {(name,): self._of(name) for name in value if _MAY_BE_OPENED(name)}
        return {**value, **inner, **keys} if inner or keys else value

    def _of_text(self, text: str) -> Any:
        if not _MAY_BE_OPENED(text):
            return text
        self._count(EXTRA_VALUES if self._level <= MAX_TEXTS_IN_TEXTS else MAX_VALUES)
        try:
            value = decode(text.encode("utf-8", "surrogatepass"), MAX_DEPTH, self._left)
        except ParseError:
            self._count(_OF_UNREADABLE + 2 * _marks(text))
            if _is_json(text):
                raise
            return text
        marks = _marks(text)
        if marks > self._left or _MAY_HAVE_TEXTS(text):
            self._level += 1
            opened_value = self._of(value)
            self._level -= 1
            return opened_value
        self._left -= marks
        return value

    def _count(self, values: int) -> None:
        self._left -= values
        if self._left < 0:
            raise TooManyValues(MAX_VALUES, 1 + EXTRA_VALUES)


def _marks(text: str) -> int:
    """Return as how many values a text of JSON counts."""
    return text.count(",") + EXTRA_VALUES * (text.count("[") + text.count("{"))


def _is_json(text: str) -> bool:
    """Return whether pydantic reads a text as JSON."""
    try:
        from_json(text)
    except ValueError:
        return False
    return True
