"""Describes why a value does not match its schema: where the problem is, and what was expected.

The validator decides; this module only looks for a reason to report. It looks at a bounded number of parts. If it finds
no reason that it understands, it reports only that the value does not match.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

import jsonschema_rs

from gateway.errors import AuthoringError
from gateway.json_schema.references import References

MOST_STEPS: Final = 2000
"""The number of parts that are looked at."""

COMPARISONS_OF_STEP: Final = 20
"""How many choices can be compared in the time of one step."""

MATCHED_CHARACTERS_OF_STEP: Final = 1000
"""How many characters can be matched against a pattern in the time of one step."""

SHOWN_CHARACTERS: Final = 200

DOES_NOT_FIT: Final = "the value does not match its schema"
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
}
_LIMITS: Final[Mapping[str, tuple[Callable[[Any, Any], bool], str]]] = {
    "minimum": (operator.lt, "less than the minimum of"),
    "exclusiveMinimum": (operator.le, "not greater than"),
    "maximum": (operator.gt, "greater than the maximum of"),
    "exclusiveMaximum": (operator.ge, "not less than"),
}


Show: TypeAlias = Callable[[Any], str]
"""Returns how a message names a part of the value."""


class _Exhausted(Exception):
    """The search has looked at enough parts."""


def find_problem(schema: Mapping[str, Any], references: References, value: Any, *, quotes: bool = True) -> str:
    """Return why the schema does not allow a value: `reason`, or `place: reason` if the problem is inside.

    `quotes` says whether the text may quote the value and the names in it.
    """
    search = _Search(references, _shown if quotes else _named)
    try:
        found = search.problem(schema, value, "")
    except (_Exhausted, RecursionError):
        return DOES_NOT_FIT
    if found is None:
        return DOES_NOT_FIT
    place, reason = found
    return f"{_cut(place.removeprefix('.'))}: {reason}" if place else reason


class _Search:
    """One search for a problem; `show` returns how a message names a part of the value."""

    def __init__(self, references: References, show: Show) -> None:
        self._references = references
        self._show = show
        self._left = MOST_STEPS

    def problem(self, schema: Any, value: Any, place: str) -> tuple[str, str] | None:
        """Return the place and the description of a problem, or None if none is found."""
        self._left -= 1
        if self._left < 0:
            raise _Exhausted
        if schema is False:
            return place, f"{self._show(value)} is not allowed here"
        if not isinstance(schema, Mapping):
            return None
        self._left -= len(_list(schema.get("enum"))) // COMPARISONS_OF_STEP
        if "pattern" in schema and isinstance(value, str):
            self._left -= len(value) // MATCHED_CHARACTERS_OF_STEP
        reason = _plain_problem(schema, value, self._show)
        if reason is not None:
            return place, reason
        for other in self._all_of(schema):
            found = self.problem(other, value, place)
            if found is not None:
                return found
        return self._inside(schema, value, place) or self._in_choices(schema, value, place)

    def _inside(self, schema: Mapping[str, Any], value: Any, place: str) -> tuple[str, str] | None:
        if isinstance(value, dict):
            return self._in_object(schema, value, place)
        return self._in_array(schema, value, place) if isinstance(value, list) else None

    def _all_of(self, schema: Mapping[str, Any]) -> list[Any]:
        """Return the schemas that always apply together with this one."""
        others = _list(schema.get("allOf"))
        if not isinstance(schema.get("$ref"), str):
            return others
        try:
            return [*self._references.targets(schema, "$ref"), *others]
        except AuthoringError:  # an accepted schema has no such reference
            return others

    def _in_object(self, schema: Mapping[str, Any], value: dict[str, Any], place: str) -> tuple[str, str] | None:
        properties = _map(schema.get("properties"))
        rest = schema.get("additionalProperties", True)
        patterns = "patternProperties" in schema
        for name, item in value.items():
            part = properties.get(name, True if patterns else rest)
            if part is False and name not in properties:
                return place, f"{self._show(name)} is not an allowed property"
            found = self.problem(part, item, place + self._step(name, properties))
            if found is not None:
                return found
        return None

    def _step(self, name: str, properties: Mapping[str, Any]) -> str:
        return _step(name) if name in properties or self._show is _shown else "[…]"

    def _in_array(self, schema: Mapping[str, Any], value: list[Any], place: str) -> tuple[str, str] | None:
        first = _list(schema.get("prefixItems"))
        rest = schema.get("items", True)
        if isinstance(rest, list):
            first, rest = rest, schema.get("additionalItems", True)
        for position, item in enumerate(value):
            part = first[position] if position < len(first) else rest
            found = self.problem(part, item, f"{place}[{position}]")
            if found is not None:
                return found
        return None

    def _in_choices(self, schema: Mapping[str, Any], value: Any, place: str) -> tuple[str, str] | None:
        """Return a problem if a value matches no choice: the one inside it, if only one choice can be meant."""
        for keyword in ("anyOf", "oneOf"):
            choices = _list(schema.get(keyword))
            found = [self.problem(choice, value, place) for choice in choices]
            if not choices or None in found:
                continue
            inside = [problem for problem in found if problem is not None and problem[0] != place]
            if len(inside) == 1:
                return inside[0]
            return place, f"{self._show(value)} matches none of the choices in {keyword}"
        return None


def _plain_problem(schema: Mapping[str, Any], value: Any, show: Show) -> str | None:
    """Return the problem that one schema has with a value itself, ignoring its parts."""
    problem = _type_problem(schema.get("type"), value, show)
    if problem is not None:
        return problem
    if "const" in schema and value != schema["const"]:
        return f"{_shown(schema['const'])} was expected"
    choices = schema.get("enum")
    if isinstance(choices, list) and len(choices) <= MOST_STEPS and value not in choices:
        return f"{show(value)} is not one of {_shown(choices) if show is _shown else 'the choices'}"
    return _limit_problem(schema, value, show)


def _type_problem(wanted: Any, value: Any, show: Show) -> str | None:
    types = [wanted] if isinstance(wanted, str) else _list(wanted)
    if not types or any(_is_type(value, name) for name in types):
        return None
    return f"{show(value)} is not of type {_cut(', '.join(repr(name) for name in types))}"


def _limit_problem(schema: Mapping[str, Any], value: Any, show: Show) -> str | None:
    """Return which limit of its type a value breaks."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _number_problem(schema, value, show)
    if isinstance(value, str):
        return _text_problem(schema, value, show)
    if isinstance(value, list):
        return _count_problem(schema, len(value), "minItems", "maxItems", "items")
    return _object_problem(schema, value) if isinstance(value, dict) else None


def _object_problem(schema: Mapping[str, Any], value: Mapping[str, Any]) -> str | None:
    for name in _list(schema.get("required")):
        if name not in value:
            return f"{_shown(name)} is a required property"
    return _count_problem(schema, len(value), "minProperties", "maxProperties", "properties")


def _number_problem(schema: Mapping[str, Any], value: float, show: Show) -> str | None:
    for keyword, (breaks, words) in _LIMITS.items():
        limit = schema.get(keyword)
        if isinstance(limit, int | float) and not isinstance(limit, bool) and breaks(value, limit):
            return f"{show(value)} is {words} {_shown(limit)}"
    divisor = schema.get("multipleOf")
    if isinstance(divisor, int) and isinstance(value, int) and value % divisor:
        return f"{show(value)} is not a multiple of {_shown(divisor)}"
    return None


def _text_problem(schema: Mapping[str, Any], value: str, show: Show) -> str | None:
    problem = _count_problem(schema, len(value), "minLength", "maxLength", "characters")
    pattern = schema.get("pattern")
    if problem is None and isinstance(pattern, str) and not _matcher(pattern).is_valid(value):
        return f"{show(value)} does not match {_shown(pattern)}"
    return problem


@lru_cache(maxsize=256)
def _matcher(pattern: str) -> Any:
    """Return a matcher for one pattern, whose time is linear in the text."""
    return jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions())


def _count_problem(schema: Mapping[str, Any], count: int, least: str, most: str, what: str) -> str | None:
    low, high = schema.get(least), schema.get(most)
    if isinstance(low, int | float) and count < low:
        return f"it has {count} {what}; expected at least {_shown(low)}"
    if isinstance(high, int | float) and count > high:
        return f"it has {count} {what}; expected at most {_shown(high)}"
    return None


def _is_type(value: Any, name: Any) -> bool:
    if name == "integer":
        return (isinstance(value, int) and not isinstance(value, bool)) or (
            isinstance(value, float) and value.is_integer()
        )
    if name == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    kind = _TYPES.get(name)
    return kind is not None and isinstance(value, kind)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _step(name: str) -> str:
    """Return the step of a place that leads to a property."""
    return f".{_cut(name)}" if _PLAIN_NAME.fullmatch(name) else f"[{_shown(name)}]"


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"


def _shown(value: Any) -> str:
    """Return a value as a message quotes it, without formatting the part that is cut."""
    if isinstance(value, str):
        value = value[:SHOWN_CHARACTERS]
    elif isinstance(value, int) and not isinstance(value, bool):
        return repr(value) if abs(value) < 10**SHOWN_CHARACTERS else "a huge number"
    elif isinstance(value, dict | list) and len(value) > SHOWN_CHARACTERS // 4:
        return "an array" if isinstance(value, list) else "an object"
    return _cut(repr(_shortened(value, 3)))


def _named(_value: Any) -> str:
    """Return what a message calls a value that it must not quote."""
    return "the value"


def _shortened(value: Any, depth: int) -> Any:
    """Return a value without the parts that would not be shown."""
    if isinstance(value, str):
        return value[:SHOWN_CHARACTERS]
    if isinstance(value, dict):
        items = list(value.items())[: SHOWN_CHARACTERS // 4] if depth else []
        return {name[:SHOWN_CHARACTERS]: _shortened(item, depth - 1) for name, item in items}
    if isinstance(value, list):
        return [_shortened(item, depth - 1) for item in (value[: SHOWN_CHARACTERS // 4] if depth else [])]
    return value
