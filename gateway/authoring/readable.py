"""Values whose text every client can read.

Python represents a file name that is not UTF-8 with lone surrogates (PEP 383), which JSON cannot hold.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel

from gateway.protocol.upstream.cleaning import without_surrogates


def readable(value: Any) -> Any:
    """Return a copy of a value with U+FFFD in place of lone surrogates, or the value itself if it has none.

    This looks into lists, tuples, dicts, dataclasses and pydantic models.
    """
    try:
        return _readable(value, {})
    except RecursionError:
        return value


def _readable(value: Any, seen: dict[int, Any]) -> Any:
    if isinstance(value, str):
        text = without_surrogates(value)
        return value if text == value else text
    if id(value) in seen:  # the same part again, or a part that contains itself
        return seen[id(value)]
    seen[id(value)] = value
    if isinstance(value, dict):
        seen[id(value)] = _of_dict(value, seen)
    elif isinstance(value, (list, tuple)):
        seen[id(value)] = _of_items(value, seen)
    elif isinstance(value, BaseModel):
        changes = dict(_changed(dict(value).items(), seen))
        seen[id(value)] = value.model_copy(update=changes) if changes else value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        seen[id(value)] = _of_dataclass(value, seen)
    return seen[id(value)]


def _of_dict(value: dict[Any, Any], seen: dict[int, Any]) -> dict[Any, Any]:
    parts = {_readable(name, seen): _readable(part, seen) for name, part in value.items()}
    is_same = all(name in parts and parts[name] is part for name, part in value.items())
    if is_same or len(parts) < len(value):  # two names would become one
        return value
    changed = copy.copy(value)
    changed.clear()
    changed.update(parts)
    return changed


def _of_items(value: list[Any] | tuple[Any, ...], seen: dict[int, Any]) -> Any:
    items = [_readable(item, seen) for item in value]
    if all(new is old for new, old in zip(items, value, strict=True)):
        return value
    make = getattr(value, "_make", list if isinstance(value, list) else tuple)  # of a named tuple
    return make(items)


def _of_dataclass(value: Any, seen: dict[int, Any]) -> Any:
    fields = ((field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value))
    changes = dict(_changed(fields, seen))
    changed = copy.copy(value) if changes else value
    for name, part in changes.items():
        object.__setattr__(changed, name, part)
    return changed


def _changed(members: Iterable[tuple[str, Any]], seen: dict[int, Any]) -> Iterator[tuple[str, Any]]:
    for name, part in members:
        new = _readable(part, seen)
        if new is not part:
            yield name, new
