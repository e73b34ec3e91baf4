"""Validators of pydantic models whose cost is proportional to the size of the input.

Pydantic itself reports every wrong item of a list, which can create a million error objects. It also tries every
choice of a union, which doubles the work with each level of models that refer to each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, cast

from pydantic import BaseModel
from pydantic_core import CoreConfig, CoreSchema, SchemaValidator

from gateway.authoring.types.colliding_keys import KeyGuard, keys_to_guard

_STOPPING: Final = frozenset(
    {"list", "set", "frozenset", "tuple", "dict", "deque", "frozendict", "ordered-dict", "counter"}
)
_NOT_SCHEMAS: Final = frozenset({"default", "metadata", "expected", "serialization", "config"})
_REFERENCE: Final = "#/$defs/"
_COMPILES: Final = "re.Pattern would compile what callers send, at any cost"
_PROGRAMS: Final = {
    "pattern_either_validator": _COMPILES,
    "pattern_str_validator": _COMPILES,
    "pattern_bytes_validator": _COMPILES,
    "import_string": "ImportString would import what callers send",
}
"""Pydantic's functions that must not read what callers send → why."""

FREE_STEPS: Final = 2000
STEPS_FOR_EACH: Final = 5
"""How many choices may be tried: a free amount, plus so many for each part of a value."""


SMALL: Final = 5000
"""All problems are reported for values with up to this many parts, fewer where they are dear to read."""


@lru_cache(maxsize=1024)
def stopping_validator(model: type[BaseModel]) -> SchemaValidator:
    """Return a validator of the model that stops at the first wrong item of a list, set, tuple or dict."""
    return bounded_validator(model.__pydantic_core_schema__)


def bounded_validator(schema: CoreSchema, *, stops: bool = True) -> SchemaValidator:
    """Return the same for any core schema. Without `stops` it reports all problems, which suits small values only.

    Raises:
        TypeError: a type would compile or import what callers send, or has a pattern that may take any time.
    """
    rewriting = _SchemaRewriting(stops=stops)
    bounded = rewriting.of(schema)
    for guard in rewriting.guards:
        guard.complete(bounded.get("definitions", []))
    # Pydantic must not reuse the validators of nested models, because those do not stop.
    return SchemaValidator(bounded, _use_prebuilt=False)


class _SchemaRewriting:
    """Makes a core schema of another one, whose validator has a cost in proportion."""

    def __init__(self, *, stops: bool) -> None:
        self.guards: list[KeyGuard] = []
        self._stops = stops

    def of(self, schema: Any, config: CoreConfig | None = None) -> Any:
        if isinstance(schema, list | tuple):
            return type(schema)(self.of(part, config) for part in schema)
        if not isinstance(schema, Mapping):
            return schema
        _refuse_program(schema.get("function"))
        config = schema.get("config", config)
        _refuse_slow_pattern(schema, config)
        copied = {name: part if name in _NOT_SCHEMAS else self.of(part, config) for name, part in schema.items()}
        if copied.get("type") in _STOPPING and self._stops:
            copied["fail_fast"] = True
        keys = keys_to_guard(copied)
        if keys is None:
            return copied
        self.guards.append(KeyGuard(keys, config))
        return self.guards[-1].around(cast("CoreSchema", copied))


def _refuse_program(function: Any) -> None:
    """Refuse a type whose reading runs what callers write: an expression of any cost, or an import."""
    called = function.get("function") if isinstance(function, Mapping) else None
    why = _PROGRAMS.get(getattr(called, "__name__", ""))
    if why is not None and getattr(called, "__module__", "").startswith("pydantic."):
        raise TypeError(f"{why}; take a str, and check it in the function")


def _refuse_slow_pattern(schema: Mapping[str, Any], config: CoreConfig | None) -> None:
    """Refuse a pattern of Python's engine, which tries all ways in which a text may match."""
    pattern = schema.get("pattern") if schema.get("type") == "str" else None
    engine = schema.get("regex_engine") or (config or {}).get("regex_engine")
    if isinstance(pattern, re.Pattern) or (pattern is not None and engine == "python-re"):
        raise TypeError(
            "a pattern of Python's engine may take any time; give the pattern as a text, without "
            "regex_engine='python-re', and check in the function what a text cannot say, such as look-ahead"
        )


class NestingLimit:
    """Limits how deep a value may nest if a schema has choices that lead back to themselves.

    Pydantic reads a union without a discriminator by trying its choices. If two of them lead back to the union, each
    level of a value doubles the work, whether the value is valid or not. The schema is that of a model as pydantic
    writes it, with untagged unions as `anyOf`.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        definitions: Mapping[str, Any] = schema.get("$defs", {})
        edges = {name: set(_references(definition)) for name, definition in definitions.items()}
        self._reachable = {name: _closure(name, edges) for name in edges}
        self._definitions = definitions
        owners = [*definitions.items(), *([("", schema)] if "#" in set(_references(schema)) else [])]
        self._choices = max((self._branching(name, owner) for name, owner in owners), default=1)

    def exceeded(self, values: Mapping[str, Any]) -> bool:
        """Return whether reading these property values could take more steps than their size allows."""
        return self._choices > 1 and _steps_exceeded(list(values.values()), self._choices)

    def _branching(self, name: str, definition: Any) -> int:
        """Return how many choices of one union lead back to the definition that contains it."""
        most = 1
        for union in _unions(definition):
            back = [self._kind(choice) for choice in union if self._leads_to(choice, name)]
            most = max([most, *(sum(kind in (other, None) for other in back) for kind in back)])
        return most

    def _leads_to(self, choice: Any, name: str) -> bool:
        return any(name == reference or name in self._reachable.get(reference, ()) for reference in _references(choice))

    def _kind(self, choice: Any) -> str | None:
        """Return the JSON type of a choice. Choices of different types are told apart at once."""
        while isinstance(choice, Mapping) and "$ref" in choice:
            choice = self._definitions.get(str(choice["$ref"]).removeprefix(_REFERENCE), {})
        kind = choice.get("type") if isinstance(choice, Mapping) else None
        return kind if isinstance(kind, str) else None


def is_small(value: Any, most: int = SMALL) -> bool:
    """Return whether a value has few enough parts to report all of its problems."""
    parts = 0
    for level in _levels(value):
        parts += len(level)
        if parts > most:
            return False
    return True


def has_null(value: Any, max_parts: int) -> bool:
    """Return whether null is among the parts of a value, and these are not too many."""
    found = False
    parts = 0
    waiting = [value]
    while waiting:
        part = waiting.pop()
        parts += 1
        if isinstance(part, dict):
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
        found = found or part is None
        if parts + len(waiting) > max_parts:
            return False
    return found


def _steps_exceeded(value: Any, choices: int) -> bool:
    steps = parts = 0
    weight = 1
    for level in _levels(value):
        parts += len(level)
        steps += weight * len(level)
        if steps > FREE_STEPS + STEPS_FOR_EACH * parts:
            return True
        if any(isinstance(part, dict) for part in level):  # a list between two models adds no choice
            weight *= choices
    return False


def _levels(value: Any) -> Iterator[list[Any]]:
    """Yield the parts of a JSON value level by level, the value itself first."""
    level = [value]
    while level:
        yield level
        level = [
            inner
            for part in level
            if isinstance(part, dict | list)
            for inner in (part.values() if isinstance(part, dict) else part)
        ]


def _references(schema: Any) -> Iterator[str]:
    for part in _parts(schema):
        reference = part.get("$ref")
        if isinstance(reference, str):
            yield reference.removeprefix(_REFERENCE)


def _unions(schema: Any) -> Iterator[list[Any]]:
    for part in _parts(schema):
        if isinstance(part.get("anyOf"), list):
            yield part["anyOf"]


def _parts(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every object of a schema, except those in its definitions."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            yield part
            waiting.extend(inner for name, inner in part.items() if name != "$defs")
        elif isinstance(part, list):
            waiting.extend(part)


def _closure(name: str, edges: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = list(edges[name])
    while waiting:
        other = waiting.pop()
        if other not in found:
            found.add(other)
            waiting.extend(edges.get(other, ()))
    return found
