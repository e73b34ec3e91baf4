"""How much memory callers' values take once pydantic has made objects of them.

A model takes much more than the two bytes of JSON that it may be made of: its fields, the defaults of those that are
missing, and the object itself. So do a `Decimal`, a set or a URL. A body counts as much memory as its JSON takes when
it is decoded, and a copy of it, and no more.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple

from gateway.authoring.types.reading_costs import (
    OBJECTS,
    copied_parts,
    defaults_of,
    fields_of,
    schemas_in,
    size_of,
    validates_defaults,
)

_OF_OBJECT: Final = 600
_OF_FIELD: Final = 100
_OF_EXTRAS: Final = 300
_OF_MADE: Final = 800
"""Bytes: more than was measured for a model, and for each field in its `__dict__` and in the set of its fields. The
others are for the dict of further fields, and for a default that a function makes, such as `deque`."""

_OF_UNKNOWN: Final = 650
"""Bytes for what any function makes of a part, pydantic's or the author's, and for types of schemas not listed here."""

_OF_SCALAR: Final = {
    "decimal": 120,
    "fraction": 140,
    "complex": 45,
    "bytes": 65,
    "date": 45,
    "time": 105,
    "datetime": 105,
    "timedelta": 60,
    "uuid": 120,
    "url": 310,
    "multi-host-url": 450,
}
_OF_CONTAINER: Final = {
    "set": 230,
    "frozenset": 230,
    "deque": 780,
    "generator": 600,
    "ordered-dict": 370,
    "counter": 220,
    "call": _OF_UNKNOWN,
}
_OF_MEMBER: Final = {"set": 110, "frozenset": 110, "ordered-dict": 100, "counter": 60}
"""Bytes for a value by its type, and for each of the values in it. Containers are made of dicts or lists only."""

_PLAIN: Final = (
    {"any", "none", "bool", "int", "float", "str", "literal", "enum", "invalid", "missing-sentinel", "ellipsis"}
    | {"list", "tuple", "dict", "is-instance", "is-subclass", "callable", "json", "model", "dataclass"}
    | {"default", "nullable", "union", "tagged-union", "chain", "lax-or-strict", "json-or-python"}
    | {"custom-error", "definitions", "model-field", "dataclass-field", "typed-dict-field", "computed-field"}
)
"""These take no more memory than their JSON and a copy, or make no value of their own."""

_OF_SEPARATOR: Final = 150
"""Bytes for each host in a URL, behind a comma, and for each segment of a path, behind a slash."""

_INSIDE: Final = OBJECTS | _OF_CONTAINER.keys() | {"list", "tuple", "dict"}
_WHOLE: Final = _INSIDE | {"model", "dataclass"}

_FEW_BYTES: Final = 100_000
"""So much is covered by what the body counts, as by a hundred models."""

_SHORT: Final = 50
"""An argument that is a text with no more characters becomes a few objects at most."""

_CONTAINERS: Final = frozenset({dict, list})
_BEGINNINGS: Final = ("{", "[", "\\u00")
"""Beginnings of objects in a text of JSON. In a text within that text, they may be written as an escape."""


class _Sizes(NamedTuple):
    """The most bytes that each part of a value takes, and how many more it takes if it is a dict or a list."""

    each: int
    container: int


class ReadingMemory:
    """Estimates the memory of the objects that pydantic makes of arguments.

    Args:
        schema: pydantic's core schema of a model whose fields are the arguments.
        names: the names of the arguments by field.
        texts: the names of the arguments in which texts are read as JSON.
    """

    def __init__(self, schema: Mapping[str, Any], names: Mapping[str, str], texts: set[str]) -> None:
        fields: Mapping[str, Any] = next(
            (each["fields"] for each in _objects(schema) if each["type"] == "model-fields"), {}
        )
        definitions = {each["ref"]: each for each in schema.get("definitions", ())}
        validates = validates_defaults(schema)
        sizes = {
            name: _sizes_of(fields[field], definitions, validates) for field, name in names.items() if field in fields
        }
        self._sizes = {name: size for name, size in sizes.items() if any(size)}
        self._texts = texts

    @property
    def has_objects(self) -> bool:
        """Whether any argument may become objects."""
        return bool(self._sizes)

    def of(self, arguments: Mapping[str, Any]) -> int:
        """Return how many bytes the objects take at most, 0 if they are few."""
        taken = 0
        for name, size in self._sizes.items():
            value = arguments.get(name)
            if type(value) in _CONTAINERS or (type(value) is str and len(value) > _SHORT):
                taken += _bytes_of_value(value, size, opens=name in self._texts)
        return taken if taken > _FEW_BYTES else 0


def _bytes_of_value(value: Any, size: _Sizes, *, opens: bool) -> int:
    """Return how many bytes a value takes.

    Args:
        value: any JSON.
        size: the bytes of its parts.
        opens: whether its texts may be read as JSON.
    """
    taken = 0
    level = [value]
    while level:
        kinds = set(map(type, level))  # quick, as all that is done for each part must be
        containers = [] if kinds.isdisjoint(_CONTAINERS) else [each for each in level if type(each) in _CONTAINERS]
        taken += size.each * len(level) + size.container * len(containers)
        if size.each or opens:
            texts = [each for each in level if type(each) is str] if str in kinds else []
            for each in containers:
                if type(each) is dict:
                    texts += each
            taken += _bytes_in_text("".join(texts), size, opens) if texts else 0
        level = list(chain.from_iterable([each.values() if type(each) is dict else each for each in containers]))
    return taken


def _bytes_in_text(text: str, size: _Sizes, opens: bool) -> int:
    commas = text.count(",")
    taken = _OF_SEPARATOR * (commas + text.count("/")) if size.each else 0
    if opens:  # each part is the first one of a dict or a list, or behind a comma
        begun = sum(map(text.count, _BEGINNINGS))
        taken += size.container * begun + size.each * (begun + commas)
    return taken


def _objects(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the core schemas of objects, the outer ones first."""
    if schema["type"] in OBJECTS:
        yield schema
    for inner in schemas_in(schema):
        yield from _objects(inner)


def _sizes_of(schema: Mapping[str, Any], definitions: Mapping[str, Mapping[str, Any]], validates: bool) -> _Sizes:
    each, most = (_Estimate(definitions, validates, of_container=container).of(schema) for container in (False, True))
    return _Sizes(each, most - each)


class _Estimate:
    """Estimates how many bytes one part of a value takes at most.

    Args:
        definitions: the core schemas that others refer to.
        validates: whether defaults are read like values that are sent.
        of_container: whether the part is a dict or a list.
    """

    def __init__(self, definitions: Mapping[str, Mapping[str, Any]], validates: bool, *, of_container: bool) -> None:
        self._definitions = definitions
        self._validates = validates
        self._of_container = of_container
        self._known: dict[str, int] = {}

    def of(self, schema: Mapping[str, Any]) -> int:
        """Return the bytes of the largest part that has a core schema, or one inside of it."""
        kind = schema["type"]
        if kind == "definition-ref":
            return self._of_definition(schema["schema_ref"])
        own = self._own(schema) + self._of_extras(schema)
        below = [self.of(inner) for inner in schemas_in(schema)]
        if self._validates and self._of_container and kind in OBJECTS:
            own += sum(map(size_of, defaults_of(schema))) * (_OF_FIELD + max(below, default=0))
        if kind in _INSIDE:
            members = sum(below) if "keys_schema" in schema else max(below, default=0)
            return max(own, members + _OF_MEMBER.get(kind, 0))
        return own + max(below, default=0)

    def _of_definition(self, reference: str) -> int:
        if reference not in self._known:
            self._known[reference] = 0  # inside itself, it is one of the parts that count anyway
            definition = self._definitions.get(reference)
            self._known[reference] = _OF_UNKNOWN if definition is None else self.of(definition)
        return self._known[reference]

    def _own(self, schema: Mapping[str, Any]) -> int:
        kind = schema["type"]
        if kind == "model" and (self._of_container or schema.get("root_model")):
            return _bytes_of_model(schema)
        if kind in _OF_SCALAR or kind in _PLAIN:
            return _OF_SCALAR.get(kind, 0)
        if kind in OBJECTS:
            return _bytes_of(schema) if self._of_container else 0
        if kind in _OF_CONTAINER:
            return _OF_CONTAINER[kind] if self._of_container else 0
        return _OF_UNKNOWN if self._of_container or not _only_checks_whole(schema) else 0

    def _of_extras(self, schema: Mapping[str, Any]) -> int:
        """Return the bytes of the dict of further fields, or of one of them, if an object may have them."""
        if (schema.get("config") or {}).get("extra_fields_behavior") != "allow":
            return 0
        return _OF_EXTRAS if self._of_container else _OF_FIELD


def _only_checks_whole(schema: Mapping[str, Any]) -> bool:
    """Return whether a function takes what was made of a dict or a list, as a validator of a model does."""
    inner = schema
    while inner["type"] == "function-after":
        inner = inner["schema"]
    return inner is not schema and inner["type"] in _WHOLE


def _bytes_of(schema: Mapping[str, Any]) -> int:
    return _OF_OBJECT + sum(map(_bytes_of_field, fields_of(schema)))


def _bytes_of_model(schema: Mapping[str, Any]) -> int:
    """Return the bytes of a model in addition to those of its fields, or of a root model with its value's place."""
    private = getattr(schema["cls"], "__private_attributes__", {}).values()
    return (_OF_OBJECT if schema.get("root_model") else 0) + sum(
        _OF_FIELD + _bytes_of_made(each.default_factory) + _bytes_of_copy(each.default) for each in private
    )


def _bytes_of_field(field: Mapping[str, Any]) -> int:
    return _OF_FIELD + _bytes_of_made(field.get("default_factory")) + _bytes_of_copy(field.get("default"))


def _bytes_of_made(make: Any) -> int:
    """Return the bytes of a default that a function makes, 0 without one."""
    if make is None:
        return 0
    return sys.getsizeof(make()) if make in (list, dict, set) else _OF_MADE


def _bytes_of_copy(default: Any) -> int:
    return sum(sys.getsizeof(each) + sys.getsizeof(getattr(each, "__dict__", None)) for each in copied_parts(default))
