"""Writes out the references of a schema, because simple clients cannot follow them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

MAX_PARTS: Final = 2000
"""A schema that would get more objects than this keeps its references: each use of a model copies it."""

_PREFIX: Final = "#/$defs/"
_MAPS_OF_SCHEMAS: Final = frozenset({"properties", "patternProperties", "dependentSchemas"})
_NO_SCHEMAS: Final = frozenset({"enum", "const", "default", "examples"})
_NOTES: Final = frozenset({"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"})
"""Keywords that constrain nothing. Beside a reference, they replace those of the definition."""


def inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with its definitions in place of the references to them.

    A definition that refers to itself stays in `$defs`, and so do all definitions if the schema would become too
    large. A schema with other references than pydantic's is returned unchanged.
    """
    definitions: Mapping[str, Any] = schema.get("$defs", {})
    uses = {name: list(_references(definition)) for name, definition in definitions.items()}
    root = {name: part for name, part in schema.items() if name != "$defs"}
    if not definitions or not definitions.keys() >= {*_references(root), *_flat(uses)}:
        return schema
    kept = {name: definition for name, definition in definitions.items() if name in _reachable(name, uses)}
    inliner = _Inliner(definitions, kept.keys())
    if inliner.size(root) + sum(map(inliner.size, kept.values())) > MAX_PARTS:
        return schema
    result: dict[str, Any] = inliner.written(root)
    if kept:
        result["$defs"] = {name: inliner.written(definition) for name, definition in kept.items()}
    return result


class _Inliner:
    def __init__(self, definitions: Mapping[str, Any], kept: Collection[str]) -> None:
        self._definitions = definitions
        self._kept = kept
        self._sizes: dict[str, int] = {}

    def size(self, schema: Any) -> int:
        """Return how many objects the written schema will have."""
        own = sum(1 for _ in _schemas(schema))
        return own + sum(self._size_of(name) for name in _references(schema) if name not in self._kept)

    def _size_of(self, name: str) -> int:
        if name not in self._sizes:
            self._sizes[name] = self.size(self._definitions[name])
        return self._sizes[name]

    def written(self, schema: Any) -> Any:
        if isinstance(schema, list):
            return [self.written(part) for part in schema]
        if not isinstance(schema, Mapping):
            return schema
        result = {name: self._member(name, part) for name, part in schema.items()}
        reference = _reference(schema)
        if reference is None or reference in self._kept:
            return result
        del result["$ref"]
        return _merged(self.written(self._definitions[reference]), result)

    def _member(self, name: str, part: Any) -> Any:
        if name in _NO_SCHEMAS:
            return part
        if name == "discriminator":
            return _without_mapping(part)
        if name in _MAPS_OF_SCHEMAS and isinstance(part, Mapping):
            return {inner: self.written(schema) for inner, schema in part.items()}
        return self.written(part)


def _merged(definition: dict[str, Any], beside: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that demands what a definition and the keywords beside its reference demand."""
    clash = any(name in definition and definition[name] != part for name, part in beside.items() if name not in _NOTES)
    return {"allOf": [definition], **beside} if clash else {**definition, **beside}


def _without_mapping(discriminator: Any) -> Any:
    """Drop the part of OpenAPI's `discriminator` that refers to definitions. JSON Schema ignores the keyword."""
    if not isinstance(discriminator, Mapping):
        return discriminator
    return {name: part for name, part in discriminator.items() if name != "mapping"}


def _reference(schema: Mapping[str, Any]) -> str | None:
    reference = schema.get("$ref")
    return reference.removeprefix(_PREFIX) if isinstance(reference, str) else None


def _references(schema: Any) -> Iterator[str]:
    for part in _schemas(schema):
        reference = _reference(part)
        if reference is not None:
            yield reference


def _schemas(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and every schema in it. A default, or another value, is not a schema."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting.extend(part)
        elif isinstance(part, Mapping):
            yield part
            for name, inner in part.items():
                if name in _MAPS_OF_SCHEMAS and isinstance(inner, Mapping):
                    waiting.extend(inner.values())
                elif name not in _NO_SCHEMAS:
                    waiting.append(inner)


def _reachable(name: str, uses: Mapping[str, list[str]]) -> set[str]:
    found: set[str] = set()
    waiting = list(uses[name])
    while waiting:
        other = waiting.pop()
        if other not in found:
            found.add(other)
            waiting.extend(uses[other])
    return found


def _flat(uses: Mapping[str, list[str]]) -> Iterator[str]:
    for names in uses.values():
        yield from names
