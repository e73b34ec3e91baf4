"""Pure: what may rest in a journal. JSON values and nothing else (replay rule 7)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias, Union

from gateway.errors import AuthoringError

Json: TypeAlias = Union[bool, int, float, str, list["Json"], dict[str, "Json"], None]  # noqa: UP007 - recursive alias

MAX_DEPTH = 100
"""Deepest nesting of a value that a journal carries."""


def json_value(value: object, where: str) -> Json:
    """Return `value` as plain JSON: tuples become lists, everything else must be JSON already.

    The first leg and every replay hand the author the same value because both hand out this form.

    Args:
        value: what the author wants to keep.
        where: how to name the value in the error, e.g. `step 'fetch'`.

    Raises:
        AuthoringError: a part of the value is not JSON; the message names the part.
    """
    return _convert(value, where, MAX_DEPTH)


def _convert(value: object, where: str, depth: int) -> Json:
    if value is None or isinstance(value, (str, bool, int)):
        return _scalar(value, where)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise AuthoringError(f"{where}: {value!r} is not a JSON number")
        return float(value)
    if depth == 0:
        raise AuthoringError(f"{where}: nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, (list, tuple)):
        return [_convert(item, f"{where}[{index}]", depth - 1) for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {_name(key, where): _convert(item, f"{where}.{key}", depth - 1) for key, item in value.items()}
    raise AuthoringError(
        f"{where}: {type(value).__name__} is not a JSON value; keep plain dicts, lists, strings and numbers"
        " (a pydantic model gives one with model_dump(mode='json'))"
    )


def _scalar(value: str | bool | int | None, where: str) -> Json:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise AuthoringError(f"{where}: text with a lone surrogate is not JSON") from None
        return str(value)
    if value is None or isinstance(value, bool):
        return value
    return int(value)


def _name(key: object, where: str) -> str:
    if not isinstance(key, str):
        raise AuthoringError(f"{where}: {key!r} is not a JSON name; names are strings")
    return str(key)
