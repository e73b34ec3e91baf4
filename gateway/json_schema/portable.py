"""Schemas of results that the validators of all clients can read.

Clients compile the `outputSchema` of each tool that they list, and some lose the whole list over one that their
validator refuses. Validators also differ in what they refuse: Ajv in TypeScript, jsonschema in Python, and Rust's. So
only the part of JSON Schema counts that is the same for them. All work here is linear in the size of a schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

import jsonschema_rs

from gateway.errors import AuthoringError
from gateway.json_schema.patterns import why_not_portable

OF_SCHEMAS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
LISTS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
SCHEMAS: Final = frozenset(
    {
        *("items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else"),
        *("unevaluatedItems", "unevaluatedProperties"),
    }
)
"""The keywords of 2020-12 whose value has schemas by name, in a list, or is one."""

MAX_REPEATED: Final = 25_000
"""How many values the targets of all references may have together. Ajv compiles a target again for each of them."""

MAX_CHOICES: Final = 400
MAX_NESTED: Final = 300
"""How many choices and patterns of names may be within each other, and how many levels of objects and arrays the
targets with references may have together. The stack of Ajv ends at four and at two times as many."""

_BESIDE: Final = frozenset({"dependentSchemas", "allOf", "anyOf", "oneOf", "not", "if", "then", "else"})
"""The keywords whose schemas apply to the same value."""
_NAMING: Final = frozenset({"$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor"})
"""Ajv looks for these below words that it does not know, too, and shares the names with the schemas of other tools."""
_UNCLEAR: Final = frozenset(
    {
        *("id", "$schema", "$async", "$dynamicRef", "$recursiveRef", "dependencies", "additionalItems"),
        *("formatMinimum", "formatMaximum", "formatExclusiveMinimum", "formatExclusiveMaximum"),
    }
)
"""Keywords of other drafts, or of Ajv alone, which one validator applies or refuses and another ignores."""
_DIALECT: Final = re.compile(
    r"https?://json-schema\.org/(?:draft/2020-12|draft/2019-09|draft-07|draft-06)/schema#?", re.ASCII
)
_POINTER: Final = re.compile(r"#(?:/(?:[\w.$-]|~[01])+)*", re.ASCII)
"""References that need no decoding: validators differ in that."""
_INDEX: Final = re.compile(r"0|[1-9]\d{0,5}", re.ASCII)


def portable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema that the validators of all clients can read: this one, without an `$id` of the whole.

    Clients keep validators by `$id`, so that of another tool could take its place.

    Raises:
        AuthoringError: some clients could not read it. The message says why.
    """
    read = {name: value for name, value in schema.items() if name not in ("$id", "id")}
    plain = dict(read)
    dialect = plain.pop("$schema", None)
    if dialect is not None and not (isinstance(dialect, str) and _DIALECT.fullmatch(dialect)):
        raise AuthoringError("clients do not know its $schema; leave it out to use 2020-12")
    try:
        jsonschema_rs.meta.validate(plain)
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise AuthoringError(f"it is not valid in 2020-12: {getattr(error, 'message', error)}") from None
    _Values(plain).check()
    return read


class _Values:
    """All values of a schema, each after the one that it is in."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._parts: list[Mapping[str, Any]] = []
        self._targets: list[Any] = []
        self._containers: list[tuple[Any, int]] = []
        """Each object and array, with the place of the one that it is in."""
        self._read()

    def check(self) -> None:
        for part in self._parts:
            _check_part(part)
            if "$ref" in part:
                self._targets.append(_target(self._schema, part["$ref"]))
        self._check_loops()
        self._check_repetition()

    def _read(self) -> None:
        """Collect all values. Those of `properties` may have any name, others no name of a schema."""
        waiting: list[tuple[Any, int, str | None, int]] = [(self._schema, -1, "", 0)]  # "" is for schemas
        while waiting:
            value, parent, keyword, choices = waiting.pop()
            place = len(self._containers)
            if keyword in LISTS or keyword == "patternProperties":
                choices += len(value)
                if choices > MAX_CHOICES:
                    raise AuthoringError(f"it has more than {MAX_CHOICES} choices within each other")
            if isinstance(value, dict):
                if keyword != "properties" and not _NAMING.isdisjoint(value):
                    raise AuthoringError("it names a part by $id or $anchor; refer to parts by #/$defs/name instead")
                self._containers.append((value, parent))
                if keyword == "":
                    self._parts.append(value)
                waiting.extend((inner, place, _kind(keyword, name), choices) for name, inner in value.items())
            elif isinstance(value, list | tuple):
                self._containers.append((value, parent))
                waiting.extend((inner, place, "" if keyword in LISTS else None, choices) for inner in value)

    def _check_loops(self) -> None:
        """Refuse a schema that applies itself to the same value, which some clients do without end."""
        targets = iter(self._targets)
        sorter = TopologicalSorter[int]()
        for part in self._parts:
            beside = [*_beside(part), *([next(targets)] if "$ref" in part else ())]
            if beside:
                sorter.add(id(part), *map(id, filter(None, beside)))
        try:
            sorter.prepare()
        except CycleError:
            raise AuthoringError("it refers to itself without end") from None

    def _check_repetition(self) -> None:
        if not self._targets:
            return
        sizes = [len(value) for value, _ in self._containers]
        refers = [isinstance(value, dict) and "$ref" in value for value, _ in self._containers]
        heights = [1] * len(sizes)
        for place in range(len(sizes) - 1, 0, -1):
            parent = self._containers[place][1]
            sizes[parent] += sizes[place]
            refers[parent] |= refers[place]
            heights[parent] = max(heights[parent], heights[place] + 1)
        keys = [id(value) for value, _ in self._containers]
        # A target with references is compiled once, within the one that refers to it first.
        copied = {key: size for key, size, kept in zip(keys, sizes, refers, strict=True) if not kept}
        nested = {key: height for key, height, kept in zip(keys, heights, refers, strict=True) if kept}
        if sum(copied.get(id(target), 0) for target in self._targets) > MAX_REPEATED:
            raise AuthoringError("its references repeat too much; refer to smaller parts")
        if sum(nested.get(key, 0) for key in set(map(id, self._targets))) > MAX_NESTED:
            raise AuthoringError("too many of its definitions refer to others; refer to fewer")


def _kind(keyword: str | None, name: str) -> str | None:
    """Return what a member of an object is: "" for a schema, the keyword if it has schemas, None for a value."""
    if keyword == "":
        return "" if name in SCHEMAS else name if name in OF_SCHEMAS or name in LISTS else None
    return "" if keyword in OF_SCHEMAS else None


def _check_part(part: Mapping[str, Any]) -> None:
    """Check the keywords of one schema."""
    if not _UNCLEAR.isdisjoint(part):
        raise AuthoringError(f"some clients cannot read {min(_UNCLEAR & part.keys())}; leave it out")
    if not part.get("enum", True):
        raise AuthoringError("it has an empty enum, which some clients refuse")
    if "nullable" in part and not _is_clear_nullable(part["nullable"], part.get("type")):
        raise AuthoringError("some clients cannot read its nullable; write null among the types instead")
    if "pattern" in part:
        _check_pattern(part["pattern"])
    for pattern in part.get("patternProperties", ()):
        _check_pattern(pattern)


def _check_pattern(pattern: str) -> None:
    problem = why_not_portable(pattern)
    if problem is not None:
        raise AuthoringError(f"some clients cannot read the pattern {pattern[:80]!r}: {problem}")


def _is_clear_nullable(nullable: Any, types: Any) -> bool:
    return types is not None and (nullable is True or (nullable is False and "null" not in types))


def _beside(part: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the schemas that apply to the same value as one that has them."""
    for keyword in _BESIDE & part.keys():
        value = part[keyword]
        if keyword in OF_SCHEMAS:
            yield from value.values()
        elif keyword in LISTS:
            yield from value
        else:
            yield value


def _target(schema: Any, reference: str) -> Any:
    """Return the schema that a JSON pointer (RFC 6901) leads to."""
    found = schema
    if _POINTER.fullmatch(reference):
        steps = iter(reference.split("/")[1:])
        for keyword in steps:
            value = found.get(keyword) if isinstance(found, dict) else None
            if keyword in SCHEMAS:
                found = value
            elif keyword in OF_SCHEMAS and value is not None:
                found = value.get(next(steps, "").replace("~1", "/").replace("~0", "~"))
            else:
                found = _item(value, next(steps, "")) if keyword in LISTS else None
        if found is not None:
            return found
    raise AuthoringError(f"clients cannot follow its reference {reference[:80]!r}; use a form such as #/$defs/name")


def _item(value: Any, index: str) -> Any:
    return value[int(index)] if value and _INDEX.fullmatch(index) and int(index) < len(value) else None
