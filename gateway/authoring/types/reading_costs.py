"""Bounds how long pydantic takes to read arguments whose types cost more than the JSON they are sent as.

A union is read by trying its choices, and some types are read by Python code. The cost of one part of a value is
estimated from pydantic's core schema. A value with more parts than its type allows is refused before it is read.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from gateway.authoring.types.colliding_keys import keys_to_guard

MOST_MICROSECONDS: Final = 50_000
"""How long reading the dear arguments of one call may take."""

_CHEAP: Final = 0.8
"""Arguments with no part that takes more microseconds cost what their size deserves."""

_OF_FUNCTION: Final = {"function-plain": 4.5, "function-wrap": 1.0, "function-before": 2.0, "function-after": 2.0}
_OF_NAMED: Final = {
    "ip_v4_interface_validator": 6.5,
    "ip_v6_interface_validator": 6.5,
    "IPvAnyAddress._validate": 4.0,
    "IPvAnyNetwork._validate": 6.5,
    "IPvAnyInterface._validate": 8.5,
    "validate_str_is_valid_iana_tz": 50.0,
}
_OF_TYPE: Final = {"decimal": 0.5, "fraction": 2.0, "uuid": 0.2, "generator": 0.5, "counter": 1.0}
_OF_OBJECT: Final = 0.3
_OF_FIELD: Final = 0.1
_OF_COPY: Final[Mapping[type, float]] = {list: 2.0, dict: 2.0}
_OF_COPIED_OBJECT: Final = 4.0
_OF_COPIED_PART: Final = 0.2
_OF_CHOICE: Final = 0.1
_OF_ENUM_CHOICE: Final = 2.0
_OTHERS: Final = 0.05
"""Microseconds for a part of a value, by its type. An enum as a choice of a union is dear where it does not fit."""

_BELOW: Final = frozenset(
    {"list", "set", "frozenset", "tuple", "dict", "deque", "frozendict", "ordered-dict", "counter", "generator"}
    | {"model-fields", "dataclass-args", "typed-dict", "arguments", "arguments-v3", "named-tuple"}
)
OBJECTS: Final = frozenset({"model-fields", "dataclass-args", "typed-dict", "arguments", "arguments-v3", "named-tuple"})
"""The types of core schemas of objects with fields."""

_PLAIN: Final = frozenset({"str", "int", "float", "bool"})
_CONTAINERS: Final = (dict, list)
_SIZED: Final = (dict, list, tuple, set, frozenset)
_EITHER: Final = frozenset({"tagged-union", "json-or-python"})
_NOT_SCHEMAS: Final = frozenset(
    {"function", "default", "metadata", "expected", "serialization", "config", "definitions"}
)
_READERS: Final = frozenset({"pydantic", "ipaddress"})


class _ReadingCosts(NamedTuple):
    """The microseconds for each part of a value, and what a part that is a dict or a list costs in addition."""

    each: float
    container: float

    @property
    def most(self) -> float:
        """The microseconds for the dearest part."""
        return self.each + self.container


class ReadingLimit:
    """Limits the parts of those arguments that are dear to read.

    Args:
        schema: pydantic's core schema of a model whose fields are the arguments.
        names: the names of the arguments by field.

    Attributes:
        dearest: the microseconds for the dearest part of any argument.
        texts: the names of the arguments in which texts are read as JSON.
        are_plain: whether each argument is a text, a number or a bool, which no code of the author reads.
    """

    def __init__(self, schema: Mapping[str, Any], names: Mapping[str, str]) -> None:
        self._definitions = {each["ref"]: each for each in schema.get("definitions", ())}
        self._validates_defaults = validates_defaults(schema)
        self._followed: set[str] = set()
        self._has_text = False
        self.texts: set[str] = set()
        fields: Mapping[str, Any] = next(_found(schema, "model-fields"), {"fields": {}})["fields"]
        costs = {
            names[field]: self._of_argument(names[field], each) for field, each in fields.items() if field in names
        }
        self._dear = {name: cost for name, cost in costs.items() if cost.most > _CHEAP}
        self.dearest = max((cost.most for cost in self._dear.values()), default=1.0)
        self.are_plain = all(_is_plain(each["schema"]) for each in fields.values())

    def exceeded(self, arguments: Mapping[str, Any]) -> tuple[str, int] | None:
        """Return the name of an argument that has too many parts, and how many of the dearest would fit, or None.

        Texts that are read as JSON must be opened before.
        """
        left: float = MOST_MICROSECONDS
        for name, cost in self._dear.items():
            taken = _microseconds(arguments.get(name), cost, left)
            if taken > left:
                return name, int(left / cost.most)
            left -= taken
        return None

    def _of_argument(self, name: str, schema: Mapping[str, Any]) -> _ReadingCosts:
        costs = []
        self._has_text = False
        for of_container in (False, True):
            self._followed.clear()
            costs.append(self._cost(schema, in_choice=False, of_container=of_container))
        if self._has_text:
            self.texts.add(name)
        return _ReadingCosts(costs[0], costs[1] - costs[0])

    def _cost(self, schema: Mapping[str, Any], *, in_choice: bool, of_container: bool) -> float:
        """Return the highest cost of one part of a value that has this core schema.

        Only a part that is a dict or a list can be read as an object.
        """
        kind = schema["type"]
        if kind == "definition-ref":
            return self._referred(schema["schema_ref"], in_choice=in_choice, of_container=of_container)
        self._has_text |= kind == "json"
        below = self._below(schema, in_choice=in_choice or kind == "union", of_container=of_container)
        own = _own(schema, in_choice=in_choice, of_container=of_container)
        if kind in OBJECTS and of_container:
            own += _of_defaults(schema, max(below, default=0) if self._validates_defaults else 0)
        if kind in _BELOW:
            return max(own, sum(below) if "keys_schema" in schema else max(below, default=0))
        if kind in _EITHER:
            return own + max(below, default=0)
        return own + sum(below)

    def _below(self, schema: Mapping[str, Any], *, in_choice: bool, of_container: bool) -> list[float]:
        lax = schema["type"] == "lax-or-strict"
        keys = keys_to_guard(schema)  # they are read twice
        return [
            self._cost(inner, in_choice=in_choice, of_container=of_container) * (2 if inner is keys else 1)
            for inner in ([schema["lax_schema"]] if lax else schemas_in(schema))
        ]

    def _referred(self, reference: str, *, in_choice: bool, of_container: bool) -> float:
        """Return the cost of a definition. It counts once: `NestingLimit` bounds choices that contain one another."""
        if reference in self._followed or reference not in self._definitions:
            return 0
        self._followed.add(reference)
        return self._cost(self._definitions[reference], in_choice=in_choice, of_container=of_container)


def _of_defaults(schema: Mapping[str, Any], validating: float) -> float:
    """Return the cost of the defaults that pydantic takes for what an object lacks.

    Args:
        schema: that of an object's fields.
        validating: the cost of each part of a default, if defaults are validated.
    """
    return sum(_of_copy(default) + validating * size_of(default) for default in defaults_of(schema))


def _of_copy(default: Any) -> float:
    """Return the cost of copying a default, as pydantic does if it has no hash."""
    return sum(
        _OF_COPY.get(type(each), _OF_COPIED_OBJECT) + _OF_COPIED_PART * _length(each) for each in copied_parts(default)
    )


def fields_of(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the core schemas of the fields of an object, with those of their defaults around them."""
    fields = schema.get("fields", schema.get("arguments_schema", ()))
    return [field["schema"] for field in (fields.values() if isinstance(fields, Mapping) else fields)]


def defaults_of(schema: Mapping[str, Any]) -> list[Any]:
    """Return the defaults of an object's fields, but for those that a function makes."""
    return [field["default"] for field in fields_of(schema) if "default" in field]


def copied_parts(default: Any) -> Iterable[Any]:
    """Return the parts of a default that pydantic copies each time: those without a hash, and all that they have."""
    copied: dict[int, Any] = {}
    try:
        hash(default)
    except TypeError:
        with suppress(Exception):  # the author's code may raise anything
            copy.deepcopy(default, copied)
    originals: Iterable[Any] = copied.get(id(copied), ())
    return originals


def _length(value: Any) -> int:
    return len(value) if isinstance(value, _SIZED) else 0


def size_of(value: Any) -> int:
    """Count the parts of a default, itself included."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, _SIZED) else ()
    return 1 + sum(map(size_of, parts))


def validates_defaults(schema: Any) -> bool:
    """Return whether a core schema reads defaults like values that are sent."""
    if isinstance(schema, list | tuple):
        return any(map(validates_defaults, schema))
    if not isinstance(schema, Mapping):
        return False
    inner = (part for name, part in schema.items() if name not in _NOT_SCHEMAS or name in ("config", "definitions"))
    return bool(schema.get("validate_default")) or any(map(validates_defaults, inner))


def _own(schema: Mapping[str, Any], *, in_choice: bool, of_container: bool) -> float:
    kind = schema["type"]
    if kind in _OF_FUNCTION:
        return _of_function(schema["function"]["function"], _OF_FUNCTION[kind])
    if kind == "enum":
        return _OF_ENUM_CHOICE if in_choice else _OTHERS
    if kind in OBJECTS and of_container:
        return _OF_OBJECT + _OF_FIELD * len(fields_of(schema))
    if kind == "union":
        return _OF_CHOICE * len(schema["choices"])
    return _OF_TYPE.get(kind, _OTHERS)


def _of_function(function: Any, cost: float) -> float:
    """Return the cost of a function, 0 if it is the author's."""
    module: str = getattr(function, "__module__", None) or ""
    if module.partition(".")[0] not in _READERS:
        return 0
    return _OF_NAMED.get(getattr(function, "__qualname__", ""), cost)


def reads_json_texts(schema: Mapping[str, Any]) -> bool:
    """Return whether a core schema reads a text as JSON anywhere."""
    return any(any(_found(each, "json")) for each in (schema, *schema.get("definitions", ())))


def _is_plain(schema: Mapping[str, Any]) -> bool:
    while schema["type"] in {"default", "nullable"} and "default_factory" not in schema:
        schema = schema["schema"]
    return schema["type"] in _PLAIN


def _found(schema: Mapping[str, Any], kind: str) -> Iterator[Mapping[str, Any]]:
    if schema["type"] == kind:
        yield schema
    for inner in schemas_in(schema):
        yield from _found(inner, kind)


def schemas_in(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the core schemas directly inside of one."""
    waiting = [part for name, part in schema.items() if name not in _NOT_SCHEMAS]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping) and isinstance(part.get("type"), str):
            yield part
        elif isinstance(part, Mapping):
            waiting.extend(part.values())
        elif isinstance(part, list | tuple):
            waiting.extend(part)


def _microseconds(value: Any, cost: _ReadingCosts, most: float) -> float:
    """Return how long a value takes to read, counted no further than `most`."""
    taken = cost.each
    waiting: list[Any] = [[value]]
    while waiting and taken <= most:
        part = waiting.pop()
        parts = part.values() if isinstance(part, dict) else part
        taken += cost.container + cost.each * len(parts)
        if taken > most:
            break
        waiting += [each for each in parts if isinstance(each, _CONTAINERS)]
    return taken
