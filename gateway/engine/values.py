"""Pure: the values that a journal may hold: JSON and nothing else (replay rule 7)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import CoroutineType
from typing import Any, Final, Protocol, TypeAlias

from gateway.engine.exchanged_token import NOT_A_VALUE, ExchangedToken
from gateway.errors import AuthoringError, ResultTooLarge

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None

MAX_DEPTH = 100
"""How deep a value in a journal may be nested."""

MAX_INTEGER_BITS = 14_000
"""The largest integer; Python writes at most 4,300 digits as text."""

MAX_VALUE_BYTES: Final = 16 * 2**20
"""How large a value may be that a call sends, as JSON; by default."""

MAX_WEIGHED: Final = 10_000
"""How many parts of a value are looked at to find out whether it is too large. Lists of plain values are one part."""

_PLAIN_INTEGERS: Final = 2**63
_ONE_CHARACTER: Final = frozenset({int, float, bool, type(None)})
"""The types whose shortest JSON has one character."""

_KINDS: Final[Mapping[type, str]] = {
    dict: "an object",
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a number",
}

_PLAIN_VALUES: Final = (
    "keep plain dicts, lists, strings and numbers (for a pydantic model, use model_dump(mode='json'))"
)


class Recorder(Protocol):
    """Writes the values of one type as JSON, and reads them again."""

    def record(self, value: object, where: str) -> tuple[Json, Any]:
        """Return a value as JSON, and what `restore` makes of it.

        Raises:
            AuthoringError: the value does not have the type, or would not be restored as it is.
        """
        ...

    def restore(self, recorded: Json, where: str) -> Any:
        """Return a new value from its JSON; raise `AuthoringError` if the type does not accept it."""
        ...


class NotJson(AuthoringError):
    """A value has a type that JSON lacks."""


def json_value(value: object, where: str, fix: str = _PLAIN_VALUES) -> Json:
    """Return `value` as plain JSON: tuples become lists, everything else must be JSON already.

    The author gets this form in the first leg too, so every replay returns an equal value. `where` names the value in
    the error, e.g. `step 'fetch'`. `fix` says what to do about a value of another type.

    Raises:
        AuthoringError: a part of the value is not JSON; the message names the part. `NotJson` if it has another type.
    """
    if type(value) is str and value.isascii():
        return value
    try:
        return _convert(value, where, MAX_DEPTH)
    except NotJson as error:
        raise NotJson(f"{error}; {fix}") from None


def _convert(value: object, where: str, depth: int) -> Json:
    if value is None or isinstance(value, (str, bool, int)):
        return _scalar(value, where)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise AuthoringError(f"{where}: {value!r} is not a JSON number")
        return float.__float__(value)
    if depth == 0:
        raise AuthoringError(f"{where}: nested deeper than {MAX_DEPTH} levels")
    # Most parts are plain. A call for each of them, with its place for an error, would take ten times as long.
    if isinstance(value, (list, tuple)):
        return [
            item if _is_plain(item) else _convert(item, f"{where}[{index}]", depth - 1)
            for index, item in enumerate(value)
        ]
    if isinstance(value, Mapping):
        return {
            key if type(key) is str and key.isascii() else _name(key, where): item
            if _is_plain(item)
            else _convert(item, f"{where}.{key}", depth - 1)
            for key, item in value.items()
        }
    refuse_coroutine(value, where)
    if isinstance(value, ExchangedToken):
        raise AuthoringError(f"{where}: {NOT_A_VALUE}")
    raise NotJson(f"{where}: {type(value).__name__} is not a JSON value")


def _is_plain(value: Any) -> bool:
    """Return whether a value certainly is JSON as it is."""
    kind = type(value)
    if kind is str:
        return bool(value.isascii())
    return kind is bool or value is None or (kind is int and -_PLAIN_INTEGERS < value < _PLAIN_INTEGERS)


def refuse_large(value: object, what: str, limit: int) -> None:
    """Raise `ResultTooLarge` if a value certainly has more than `limit` bytes of JSON, before time is spent on it."""
    if exceeds(value, limit):
        raise ResultTooLarge(what, limit)


def exceeds(value: object, limit: int) -> bool:
    """Return whether a value certainly has more than `limit` bytes of JSON, without writing it.

    Values that are neither JSON nor bytes count as nothing, and so does all that follows `MAX_WEIGHED` parts. So this
    takes a fraction of the time that writing takes.
    """
    if isinstance(value, str):
        return len(value) > limit
    left = limit
    waiting: list[Any] = [value]
    for _ in range(MAX_WEIGHED):
        if not waiting or left < 0:
            break
        part = waiting.pop()
        if isinstance(part, (str, bytes, bytearray)):
            left -= len(part)
            continue
        if isinstance(part, Mapping):
            left -= sum(len(name) for name in part if isinstance(name, str))
            part = part.values()
        elif not isinstance(part, (list, tuple)):
            continue
        left -= 2 * len(part)  # each item has at least a character, and a comma or bracket
        kinds = {*map(type, part)}
        if kinds == {str}:
            left -= sum(map(len, part))
        elif not kinds <= _ONE_CHARACTER:
            waiting.extend(part)
    return left < 0


def refuse_coroutine(value: object, where: str, advice: str = "") -> None:
    """Refuse a coroutine where a value belongs, and close it: Python would warn that it was never awaited.

    Raises:
        AuthoringError: the value is a coroutine. The message names the call that lacks an `await`.
    """
    if isinstance(value, CoroutineType):
        value.close()
        raise AuthoringError(f"{where} is a coroutine; {advice}write `await` before the call of {value.__qualname__}")


def kind_of(value: Json) -> str:
    """Return what a JSON value is, for errors that must not quote it."""
    for kind, name in _KINDS.items():
        if isinstance(value, kind):
            return name
    return "null"


def copy_json(value: Json) -> Json:
    """Return a copy of a JSON value that shares nothing mutable with it."""
    if isinstance(value, dict):
        return {name: copy_json(member) for name, member in value.items()}
    if isinstance(value, list):
        return [copy_json(element) for element in value]
    return value


def _scalar(value: str | bool | int | None, where: str) -> Json:
    if isinstance(value, str):
        return _text(value, where)
    if value is None or isinstance(value, bool):
        return value
    if value.bit_length() > MAX_INTEGER_BITS:
        raise AuthoringError(f"{where}: an integer of {value.bit_length()} bits is too large for JSON")
    return int.__int__(value)


def _text(value: str, where: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise AuthoringError(f"{where}: text with a lone surrogate is not JSON") from None
    # Not str(value): a member of `class Colour(str, Enum)` would become "Colour.RED".
    return str.__str__(value)


def _name(key: object, where: str) -> str:
    if not isinstance(key, str):
        raise AuthoringError(f"{where}: {key!r} is not a JSON name; names are strings")
    return _text(key, where)
