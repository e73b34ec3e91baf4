"""Pure: reads the members of a request's parameters.

Many clients write null for an optional member that they do not use, so null counts as absent there. A required member
that is missing or null, and any member that is not as described, raises `InvalidParams`, which names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.errors import InvalidParams

_QUOTED_CHARS: Final = 100


def without_nulls(node: dict[str, Any]) -> dict[str, Any]:
    """Return an object without its optional members that are null."""
    return {name: value for name, value in node.items() if value is not None} if None in node.values() else node


def read_object(node: Mapping[str, Any], name: str, parent: str = "params") -> dict[str, Any]:
    """Read an optional object, empty by default."""
    return {} if node.get(name) is None else require_object(node, name, parent)


def require_object(node: Mapping[str, Any], name: str, parent: str = "params") -> dict[str, Any]:
    """Read an object."""
    value = node.get(name)
    if type(value) is not dict:
        raise InvalidParams(f"{parent}.{name} must be an object")
    return value


def read_string(node: Mapping[str, Any], name: str, parent: str = "params") -> str:
    """Read a string."""
    value = node.get(name)
    if type(value) is not str:
        raise InvalidParams(f"{parent}.{name} must be a string")
    return value


def read_strings(node: Mapping[str, Any], name: str, parent: str = "params") -> dict[str, str]:
    """Read an optional object of optional strings, empty by default."""
    values = without_nulls(read_object(node, name, parent))
    for key, value in values.items():
        if type(value) is not str:
            raise InvalidParams(f"{parent}.{name}[{quote(key)}] must be a string")
    return values


def read_flag(node: Mapping[str, Any], name: str, parent: str) -> bool:
    """Read an optional boolean, false by default."""
    value = node.get(name)
    if value is None:
        return False
    if type(value) is not bool:
        raise InvalidParams(f"{parent}.{name} must be a boolean")
    return value


def read_duration_ms(node: Mapping[str, Any], name: str, parent: str) -> int | None:
    """Read an optional duration, not negative, in whole milliseconds, rounded down."""
    value = node.get(name)
    if value is None:
        return None
    if type(value) not in (int, float) or value < 0:
        raise InvalidParams(f"{parent}.{name} must be a number of milliseconds, not less than 0")
    return int(value)


def read_names(node: Mapping[str, Any], name: str, parent: str, *, max_entries: int, max_chars: int) -> tuple[str, ...]:
    """Read an optional array of strings, not too many or too long, and return each string once, in order."""
    values = node.get(name)
    if values is None:
        return ()
    if type(values) is not list:
        raise InvalidParams(f"{parent}.{name} must be an array of strings")
    if len(values) > max_entries:
        raise InvalidParams(f"{parent}.{name} must not have more than {max_entries} entries")
    for index, value in enumerate(values):
        if type(value) is not str:
            raise InvalidParams(f"{parent}.{name}[{index}] must be a string")
        if len(value) > max_chars:
            raise InvalidParams(f"{parent}.{name}[{index}] must not be longer than {max_chars} characters")
    return tuple(dict.fromkeys(values))


def quote(text: str) -> str:
    """Return a client's text as errors repeat it: in quotes, and cut if it is long."""
    return repr(text if len(text) <= _QUOTED_CHARS else text[:_QUOTED_CHARS] + "…")
