"""How much memory callers' values take once pydantic has made objects of them.

A model takes much more than the two bytes of JSON that it may be made of: its fields, the defaults of those that are
missing, and the object itself. A body counts as much memory as its JSON takes when it is decoded, and no more.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gateway.authoring.types.reading_costs import OBJECTS, copied_parts, defaults_of, fields_of, schemas_in

_OF_OBJECT: Final = 600
_OF_FIELD: Final = 100
"""Bytes: more than was measured for a model, and for each field in its `__dict__` and in the set of its fields."""

_FEW: Final = 100
"""So few objects are covered by what the body counts, whatever their type."""

_CONTAINERS: Final = (dict, list)
_BEGINNINGS: Final = ("{", "[", "\\u00")
"""Beginnings of objects in a text of JSON. In a text within that text, they may be written as an escape."""


class ReadingMemory:
    """Estimates the memory of the objects that pydantic makes of arguments.

    Args:
        schema: pydantic's core schema of a model whose fields are the arguments.
        names: the names of the arguments by field.
        texts: the names of the arguments in which texts are read as JSON.
    """

    def __init__(self, schema: Mapping[str, Any], names: Mapping[str, str], texts: set[str]) -> None:
        definitions = max(map(_largest, schema.get("definitions", ())), default=0)
        fields: Mapping[str, Any] = next(
            (each["fields"] for each in _objects(schema) if each["type"] == "model-fields"), {}
        )
        each = {name: max(_largest(fields[field]), definitions) for field, name in names.items() if field in fields}
        self._of_object = {name: size for name, size in each.items() if size}
        self._texts = texts

    @property
    def has_objects(self) -> bool:
        """Whether any argument may become objects."""
        return bool(self._of_object)

    def of(self, arguments: Mapping[str, Any]) -> int:
        """Return how many bytes the objects take at most, 0 if they are few."""
        taken = 0
        for name, size in self._of_object.items():
            value = arguments.get(name)
            count = _containers(value, count_text=name in self._texts)
            taken += size * count if count > _FEW else 0
        return taken


def _containers(value: Any, *, count_text: bool) -> int:
    """Count the dicts and lists in a value, also those that may be in its texts."""
    found = 0
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, _CONTAINERS):
            found += 1
            waiting.extend(part.values() if isinstance(part, dict) else part)
        elif count_text and isinstance(part, str):
            found += sum(map(part.count, _BEGINNINGS))
    return found


def _objects(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the core schemas of objects, the outer ones first."""
    if schema["type"] in OBJECTS:
        yield schema
    for inner in schemas_in(schema):
        yield from _objects(inner)


def _largest(schema: Mapping[str, Any]) -> int:
    """Return how many bytes the largest object of a core schema takes without its values, 0 if it has no objects."""
    return max(map(_bytes_of, _objects(schema)), default=0)


def _bytes_of(schema: Mapping[str, Any]) -> int:
    copied = sum(map(_bytes_of_copy, defaults_of(schema)))
    return _OF_OBJECT + _OF_FIELD * len(fields_of(schema)) + copied


def _bytes_of_copy(default: Any) -> int:
    return sum(sys.getsizeof(each) + sys.getsizeof(getattr(each, "__dict__", None)) for each in copied_parts(default))
