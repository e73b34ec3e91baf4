"""Pure: reads the members of a request's parameters, each with an error that names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.errors import InvalidParams

_QUOTED_CHARS: Final = 100


def read_object(node: Mapping[str, Any], name: str, parent: str = "params") -> dict[str, Any]:
    """Read an object that may be left out; null is as absent.

    Raises:
        InvalidParams: it is something else.
    """
    return {} if node.get(name) is None else require_object(node, name, parent)


def require_object(node: Mapping[str, Any], name: str, parent: str = "params") -> dict[str, Any]:
    """Read an object.

    Raises:
        InvalidParams: it is missing or something else.
    """
    value = node.get(name)
    if type(value) is not dict:
        raise InvalidParams(f"{parent}.{name} must be an object")
    return value


def read_string(node: Mapping[str, Any], name: str, parent: str = "params") -> str:
    """Read a string.

    Raises:
        InvalidParams: it is missing or something else.
    """
    value = node.get(name)
    if type(value) is not str:
        raise InvalidParams(f"{parent}.{name} must be a string")
    return value


def read_strings(node: Mapping[str, Any], name: str, parent: str = "params") -> dict[str, str]:
    """Read an object of strings; absent and null are an empty one.

    Raises:
        InvalidParams: it, or a member of it, is something else.
    """
    values = read_object(node, name, parent)
    for key, value in values.items():
        if type(value) is not str:
            raise InvalidParams(f"{parent}.{name}[{quote(key)}] must be a string")
    return values


def read_flag(node: Mapping[str, Any], name: str, parent: str) -> bool:
    """Read a boolean that is false when left out.

    Raises:
        InvalidParams: it is something else.
    """
    value = node.get(name, False)
    if type(value) is not bool:
        raise InvalidParams(f"{parent}.{name} must be a boolean")
    return value


def read_duration_ms(node: Mapping[str, Any], name: str, parent: str) -> int | None:
    """Read a duration in milliseconds that may be left out; null is as absent, a part of one does not count.

    Raises:
        InvalidParams: it is no number, or less than nothing.
    """
    value = node.get(name)
    if value is None:
        return None
    if type(value) not in (int, float) or value < 0:
        raise InvalidParams(f"{parent}.{name} must be a number of milliseconds, not less than 0")
    return int(value)


def read_names(node: Mapping[str, Any], name: str, parent: str, *, max_entries: int, max_chars: int) -> tuple[str, ...]:
    """Read an array of strings that may be left out; return each once, in order.

    Raises:
        InvalidParams: it or an entry is something else, or there is more of it than is allowed.
    """
    values = node.get(name, [])
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
    """Return a client's text as an error repeats it: in quotes, and not all of a long one."""
    return repr(text if len(text) <= _QUOTED_CHARS else text[:_QUOTED_CHARS] + "…")
