"""Bounds on the work of checking a JSON value against a schema, computed once per schema.

The validator visits each part of a value once for each subschema that applies there. So the work is bounded by the
number of parts of each kind, times the highest cost of one such part. `Costs` has these highest costs, in units of
about 30 nanoseconds. They are upper bounds: the real work may be less, but never more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.errors import AuthoringError
from gateway.json_schema.references import References

KEYWORD: Final = 0.3
"""Units for a keyword that looks at only one part of a value. Keywords that look at more have their own figures."""
COMPARED_ITEM: Final = 6
COMPARED_PROPERTY: Final = 3
"""Units to compare one part of an array, or of an object, with one part of a choice."""
DIVIDED: Final = 70
DIVIDED_BY_LITTLE: Final = 2000
"""Units to divide a number by a fraction, and by a fraction that is almost zero."""
COMPARED_NUMBER: Final = 27
"""Units to compare a number with one that is not a 64-bit integer."""
UNEVALUATED_FACTOR: Final = 5
"""`unevaluated…` evaluates the keywords next to it again, for each property or item."""
LOOKED_UP: Final = 3
"""Units to look up an earlier result for an item, if `contains` leads back to its schema."""
MOST_UNITS: Final = 1_000_000
"""A schema that costs more than this for one part of a value is refused."""

_FEW_STATES: Final = 30
_UNITS_OF_BYTE: Final = 0.1
_UNITS_OF_STATE_AND_BYTE: Final = 0.33
_SMALL: Final = 2**63
_LITTLE: Final = 1e-12

_BESIDE_EACH: Final = ("allOf", "anyOf", "oneOf")
_BESIDE: Final = ("not", "if", "then", "else", "extends")
_BESIDE_BY_NAME: Final = ("dependentSchemas", "dependencies")
_OF_ANY_PROPERTY: Final = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_OF_ANY_ITEM: Final = ("contains", "unevaluatedItems", "additionalItems")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


@dataclass(frozen=True, slots=True)
class Units:
    """The highest cost of one part of a value, by its kind. All fields except `returns` are in units.

    `scalar` is for a string, number, boolean or null, `byte` for each byte of a string. `returns` counts the references
    that lead from here back to a schema that is being visited.
    """

    scalar: float = 0
    object_: float = 0
    array: float = 0
    byte: float = 0
    returns: int = 0

    def __add__(self, other: Units) -> Units:
        """Return the cost of both together."""
        return Units(
            self.scalar + other.scalar,
            self.object_ + other.object_,
            self.array + other.array,
            self.byte + other.byte,
            self.returns + other.returns,
        )

    def times(self, factor: float) -> Units:
        """Return the cost of doing this `factor` times."""
        return Units(self.scalar * factor, self.object_ * factor, self.array * factor, self.byte * factor, self.returns)

    def or_(self, other: Units) -> Units:
        """Return the higher cost of the two, for each kind."""
        return Units(
            max(self.scalar, other.scalar),
            max(self.object_, other.object_),
            max(self.array, other.array),
            max(self.byte, other.byte),
            max(self.returns, other.returns),
        )


_NOTHING: Final = Units()
_RETURN: Final = Units(returns=1)
_LOOKED_UP: Final = Units(LOOKED_UP, LOOKED_UP, LOOKED_UP)


@dataclass(frozen=True, slots=True)
class _Cost:
    """The cost of a schema for the part it applies to, and the highest cost for one part below."""

    here: Units = _NOTHING
    property_: Units = _NOTHING
    item: Units = _NOTHING

    def __add__(self, other: _Cost) -> _Cost:
        return _Cost(self.here + other.here, self.property_ + other.property_, self.item + other.item)

    def times(self, factor: float) -> _Cost:
        return _Cost(self.here.times(factor), self.property_.times(factor), self.item.times(factor))

    def anywhere(self) -> Units:
        return self.here.or_(self.property_).or_(self.item)


class Costs:
    """The highest cost of a schema for one part of a value.

    The schema must be valid in its dialect.

    Attributes:
        has_unique: whether items are compared with each other, or numbers with choices.
        has_multiples: whether numbers are divided by a number that is not an integer.

    Raises:
        AuthoringError: the schema costs too much, or refers to itself endlessly.
    """

    def __init__(self, schema: Any) -> None:
        self.has_unique = False
        self.has_multiples = False
        self._root = schema
        self.references = References(schema)
        self._known: dict[int, _Cost] = {}
        self._beside: list[int] = []  # the schemas that apply to the part that is being visited
        self._above: list[int] = []  # the schemas of the parts above it
        self._returned: set[int] = set()
        try:
            self.most = self._whole()
        except RecursionError:
            raise AuthoringError("the schema is nested too deeply to be checked") from None
        if max(self.most.scalar, self.most.object_, self.most.array) > MOST_UNITS:
            raise AuthoringError(
                "the schema takes too long to check: its allOf, anyOf, oneOf, $ref or unevaluated keywords multiply. "
                "Define common parts once in $defs, or give each choice a const property that identifies it"
            )

    def _whole(self) -> Units:
        cost = self._of(self._root)
        most = cost.anywhere()
        if not self._returned:
            return most
        # The validator remembers its checks, so each schema that leads back to itself counts once.
        below = [self._known[key].anywhere() for key in self._returned if key in self._known]
        if most.returns <= 1 and all(units.returns <= 1 for units in below):
            for units in below:
                most = most.or_(units)
            return most
        for units in below:
            most += units
        return most

    def _of(self, schema: Any) -> _Cost:
        """Return the cost of a schema for the part it applies to, and for the parts below."""
        if not isinstance(schema, Mapping):
            return _Cost(Units(KEYWORD, KEYWORD, KEYWORD))
        key = id(schema)
        if key in self._beside:
            raise AuthoringError("the schema refers to itself without end")
        if key in self._above:
            self._returned.add(key)
            return _Cost(_RETURN)
        known = self._known.get(key)
        if known is not None:
            return known
        self._beside.append(key)
        try:
            cost = _Cost(self._own(schema))
            for other in self._schemas_beside(schema):
                cost += self._of(other)
            cost += self._below(schema)
        finally:
            self._beside.pop()
        if "unevaluatedProperties" in schema or "unevaluatedItems" in schema:
            cost = cost.times(UNEVALUATED_FACTOR)
        self._known[key] = cost
        return cost

    def _schemas_beside(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        for name in _BESIDE_EACH:
            yield from _list(schema.get(name))
        for name in _BESIDE:
            if name in schema:
                yield schema[name]
        for name in _BESIDE_BY_NAME:
            yield from (part for part in _map(schema.get(name)).values() if not isinstance(part, list | tuple))
        for name in _REFERENCES:
            if isinstance(schema.get(name), str):
                yield from self.references.targets(schema, name)

    def _below(self, schema: Mapping[str, Any]) -> _Cost:
        """Return the highest cost of a schema for one part below."""
        beside, above = self._beside, self._above
        self._beside, self._above = [], [*above, *beside]
        try:
            property_ = item = _NOTHING
            for part in _map(schema.get("properties")).values():
                property_ = property_.or_(self._of(part).anywhere())
            for part in _map(schema.get("patternProperties")).values():
                property_ += self._of(part).anywhere()
            for name in _OF_ANY_PROPERTY:
                if name in schema:
                    property_ += self._of(schema[name]).anywhere()
            first = schema.get("items")
            for part in [*_list(schema.get("prefixItems")), *(first if isinstance(first, list | tuple) else [first])]:
                if part is not None:
                    item = item.or_(self._of(part).anywhere())
            for name in _OF_ANY_ITEM:
                if name in schema:
                    item += self._of(schema[name]).anywhere()
            if "contains" in schema:
                item += _LOOKED_UP.times(item.returns)
        finally:
            self._beside, self._above = beside, above
        return _Cost(property_=property_, item=item)

    def _own(self, schema: Mapping[str, Any]) -> Units:
        """Return the cost of those keywords that do not apply another schema."""
        base = KEYWORD * len(schema)
        choices = self._choices(schema)
        text = _pattern_units(schema.get("pattern"))
        names = [*_list(schema.get("required"))]
        for wanted in (*_map(schema.get("dependentRequired")).values(), *_map(schema.get("dependencies")).values()):
            names += [None, *_list(wanted)]
        patterns = list(_map(schema.get("patternProperties")))
        text += sum(map(_pattern_units, patterns))
        divided = _division(schema.get("multipleOf", schema.get("divisibleBy")))
        self.has_multiples |= divided > 0
        self.has_unique |= bool(schema.get("uniqueItems"))
        return (
            Units(
                scalar=base + divided + 2 * len(patterns),
                object_=base + len(names) + len(_map(schema.get("dependentSchemas"))),
                array=base,
                byte=text,
            )
            + choices
        )

    def _choices(self, schema: Mapping[str, Any]) -> Units:
        choices = [*_list(schema.get("enum")), *([schema["const"]] if "const" in schema else [])]
        if all(map(_is_hashed, choices)):
            return _NOTHING
        numbers = [choice for choice in choices if isinstance(choice, int | float)]
        self.has_unique |= bool(numbers)
        return Units(
            scalar=len(choices) + COMPARED_NUMBER * sum(not _is_small(number) for number in numbers),
            object_=len(choices)
            + COMPARED_PROPERTY * sum(_size(choice) for choice in choices if isinstance(choice, dict)),
            array=len(choices)
            + COMPARED_ITEM * sum(_size(choice) for choice in choices if isinstance(choice, list | tuple)),
        )


def _is_hashed(choice: Any) -> bool:
    """Return whether the validator finds a choice by its hash."""
    return choice is None or isinstance(choice, str | bool) or _is_small(choice)


def _is_small(number: Any) -> bool:
    return isinstance(number, int) and -_SMALL <= number < _SMALL


def _division(divisor: Any) -> float:
    """Return the units to divide by a divisor."""
    if not isinstance(divisor, float) or divisor.is_integer():
        return 0
    return DIVIDED if abs(divisor) > _LITTLE else DIVIDED_BY_LITTLE


def _size(value: Any) -> int:
    """Count the parts of a value in the author's schema."""
    if isinstance(value, dict):
        return 1 + sum(map(_size, value.values()))
    return 1 + sum(map(_size, value)) if isinstance(value, list | tuple) else 1


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


_PART: Final = re.compile(
    r"\\(?:[pP]\{[^}]*\}|u\{[^}]*\}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)"  # an escape
    r"|\[\^?\]?(?:\\.|[^\]\\])*\]"  # a class
    r"|\(\?(?:[:=!]|<[=!]|P?<\w+>|[a-z-]*:?)|\(|\)|\||[*+?]\??"  # groups and quantifiers
    r"|\{\d+(?:,\d*)?\}\??|.",
    re.DOTALL,
)
_COUNTED: Final = re.compile(r"\{(\d+)(?:,(\d*))?\}")


def _pattern_units(pattern: Any) -> float:
    """Return the units for one byte of a string: a linear engine may keep every state of a pattern alive.

    A pattern that is anchored at the start, and has no unbounded repetition, keeps only a few states.
    """
    if not isinstance(pattern, str):
        return 0
    count, endless = states(pattern)
    if count <= _FEW_STATES or (pattern.startswith("^") and "|" not in pattern and not endless):
        return _UNITS_OF_BYTE
    return _UNITS_OF_STATE_AND_BYTE * count


def states(pattern: str) -> tuple[int, bool]:
    """Return the length of a pattern with its counts expanded, and whether it has unbounded repetition."""
    sizes: list[list[int]] = [[]]
    endless = nested = False
    for part in _PART.findall(pattern):
        counted = _COUNTED.match(part)
        if part.startswith("("):
            sizes.append([])
        elif part == ")" and len(sizes) > 1:
            inner = sum(sizes.pop())
            sizes[-1].append(inner)
        elif counted is not None:
            most = int(counted[2] or counted[1])
            endless |= counted[2] == ""
            if sizes[-1]:
                nested |= sizes[-1][-1] > 1 and most > 1
                sizes[-1][-1] *= max(1, most)
        elif part[0] in "*+":
            endless = True
        elif part != "|" and part[0] != "?":
            sizes[-1].append(1)
    return sum(map(sum, sizes)), endless or nested
