"""The cost of checks as a value grows: a value of n repetitions of one unit, compared with one of 2n.

Cost is CPU time of the checking thread: the engine that checks schemas is written in Rust, whose steps Python cannot
count. A suspicion is measured repeatedly before it becomes a finding, and the lowest time counts, so a busy machine
is never a finding.
"""

from __future__ import annotations

import functools
import gc
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from gateway.authoring.arguments import Arguments, InvalidArguments
from gateway.errors import AuthoringError, ParseError
from gateway.json_schema.validation import SchemaValidator
from gateway.protocol import strict_json
from gateway.protocol.strict_json import encode
from gateway.sealing.digest import arguments_digest

Check: TypeAlias = Callable[[], object]
"""Checks one value and returns the verdict."""

Prepare: TypeAlias = Callable[[bytes], Check]
"""Returns the check of one value, given as JSON. Its own work is not measured."""

MOST_RATIO: Final = 3
FEWEST: Final = 64
"""The initial number of repetitions: more than any number in a generated schema."""
MAX_BODY_BYTES: Final = 2**20
SHORT_SECONDS: Final = 0.01
"""A check that takes less is too short to be compared."""
LONG_SECONDS: Final = 0.05
"""A check that takes longer is not repeated with a larger value, once it was compared."""
CONFIRMATIONS: Final = 11
"""How often a suspicion is measured again."""

_MOST_LEVELS: Final = 4
_MOST_PARTS: Final = 24


class Growth(NamedTuple):
    """A check whose cost rises faster than its value.

    Attributes:
        what: the check.
        units: how often the unit is repeated in the smaller value.
        smaller: CPU seconds for that.
        larger: CPU seconds for twice as many.
    """

    what: str
    units: int
    smaller: float
    larger: float

    def __str__(self) -> str:
        return (
            f"{self.what} costs {self.smaller * 1e3:.1f} ms for {self.units} and {self.larger * 1e3:.1f} ms for "
            f"{2 * self.units}, {self.larger / self.smaller:.1f} times as much"
        )


class Unit(NamedTuple):
    """The repeated part, as JSON; each `#` in it becomes the number of the repetition."""

    opening: str
    text: str
    separator: str
    closing: str

    def times(self, count: int) -> bytes:
        """Return a value with `count` repetitions of the unit."""
        if "#" in self.text:
            units = self.separator.join([self.text.replace("#", f"{number:07}") for number in range(count)])
        else:
            units = (self.text + self.separator) * (count - 1) + self.text
        return (self.opening + units + self.closing).encode()


def check_growth(schema: Any, unit: Unit, checks: Mapping[str, Callable[[Any], Prepare]]) -> None:
    """Fail if one of the checks with this schema costs more than it should.

    Args:
        schema: the schema of the values. A check that rejects it is skipped.
        unit: the repeated part of the values.
        checks: name → a function that makes the check of a schema.
    """
    value_of = functools.cache(unit.times)
    for what, make in checks.items():
        try:
            prepare = make(schema)
        except AuthoringError:
            continue
        found = _growth(what, prepare, value_of)
        assert found is None, f"{found}; schema {encode(schema).decode()}, value {unit.times(2).decode()} and so on"


def _growth(what: str, prepare: Prepare, value_of: Callable[[int], bytes]) -> Growth | None:
    """Return where the cost of a check rises by more than it should, or None."""
    count, before = FEWEST, None
    while len(text := value_of(count)) <= MAX_BODY_BYTES:
        try:
            after = _Measured(prepare(text))
        except ParseError:
            return None
        if before is not None and before.seconds >= SHORT_SECONDS:
            if before.is_dearer_twice(after):
                return Growth(what, count // 2, before.seconds, after.seconds)
            if after.seconds > LONG_SECONDS:
                return None
        count, before = 2 * count, after
    return None


class _Measured:
    """A check, its verdict and its lowest CPU time in seconds."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self.seconds = float("inf")
        self.reason = ""
        self.run()

    def run(self) -> float:
        """Check once more, and return the CPU seconds of this run."""
        gc.disable()
        try:
            begun = time.thread_time()
            verdict = self._check()
            taken = time.thread_time() - begun
        finally:
            gc.enable()
        self.seconds = min(self.seconds, taken)
        self.reason = re.sub(r"\d+", "", str(verdict))
        return taken

    def is_dearer_twice(self, larger: _Measured) -> bool:
        """Return whether twice the value certainly costs more than it should."""
        if self.reason != larger.reason or not self._seems_cheap_beside(larger):
            return False  # a value rejected for another reason was checked differently
        ratios = []
        for _ in range(CONFIRMATIONS):
            ratios.append(larger.run() / self.run())
            if not self._seems_cheap_beside(larger):
                return False
        return statistics.median(ratios) > MOST_RATIO

    def _seems_cheap_beside(self, larger: _Measured) -> bool:
        return self.seconds >= SHORT_SECONDS and larger.seconds > MOST_RATIO * self.seconds


def _decode(text: bytes) -> Any:
    return strict_json.decode(text, max_values=MAX_BODY_BYTES)  # which no body has more of


def _by_schema(schema: Any) -> Prepare:
    problem = SchemaValidator(schema).problem
    return lambda text: partial(problem, _decode(text))


def _by_type_hints(_schema: Any) -> Prepare:
    return lambda text: partial(_read_arguments, {"value": _decode(text)})


def _read_arguments(arguments: dict[str, Any]) -> str | None:
    try:
        _ARGUMENTS.read(arguments)
    except InvalidArguments as error:
        return str(error)
    return None


def _any_kind(value: list[int | float | str | dict[str, int]] | dict[str, int | str] | str) -> None:
    """Accept the parts of generated values."""


_ARGUMENTS: Final = Arguments(_any_kind)


def _reading(_schema: Any) -> Prepare:
    return lambda text: lambda: _decode(text) is None


def _digest(_schema: Any) -> Prepare:
    return lambda text: partial(_digest_of, {"value": _decode(text)})


def _digest_of(arguments: dict[str, Any]) -> None:
    arguments_digest(arguments)


CHECKS: Final[Mapping[str, Callable[[Any], Prepare]]] = {
    "a check by a schema": _by_schema,
    "a check by type hints": _by_type_hints,
    "reading": _reading,
    "a digest": _digest,
}
"""The checks of callers' input."""


class Generator:
    """Makes a schema and a unit from letters. All letters are valid: one without a meaning here stands for another.

    Args:
        letters: each makes one choice. After the last one, everything is as short as possible.
    """

    def __init__(self, letters: bytes) -> None:
        self._letters: Iterator[int] = iter(letters)
        self._parts = 0

    def _choose(self, choices: str) -> str:
        """Return the next letter, the first choice at the end."""
        letter = next(self._letters, None)
        if letter is None:
            return choices[0]
        return chr(letter) if chr(letter) in choices else choices[letter % len(choices)]

    def schema(self, level: int = 0) -> Any:
        """Return a schema: keywords up to a full stop."""
        made: dict[str, Any] = {}
        inner = "".join((*_ONE_INSIDE, *_TWO_INSIDE)) if level < _MOST_LEVELS else ""
        while self._parts < _MOST_PARTS:
            letter = self._choose("." + "".join(_PLAIN) + inner)
            if letter == ".":
                break
            self._parts += 1
            if letter in _PLAIN:
                made |= _PLAIN[letter]
            elif letter in _ONE_INSIDE:
                made |= _ONE_INSIDE[letter](self.schema(level + 1))
            else:
                made |= _TWO_INSIDE[letter](self.schema(level + 1), self.schema(level + 1))
        return made

    def unit(self) -> Unit:
        """Return the repeated part: items, members or a piece of text."""
        match self._choose('[{"'):
            case "{":
                return Unit("{", f'"k#": {self._value()}', ",", "}")
            case '"':
                return Unit('"', {"a": "a", "b": "ab", "#": "#", "u": "\u00e4"}[self._choose("ab#u")], "", '"')
        return Unit("[", self._value(), ",", "]")

    def _value(self, level: int = 0) -> str:
        letter = self._choose("".join(_VALUES) + "ao" * (level < _MOST_LEVELS))
        if letter == "a":
            return f"[{self._value(level + 1)}, {self._value(level + 1)}]"
        if letter == "o":
            return f'{{"a": {self._value(level + 1)}, "k#": {self._value(level + 1)}}}'
        return _VALUES[letter]


_PLAIN: Final[dict[str, dict[str, Any]]] = {
    "u": {"uniqueItems": True},
    "e": {"enum": [{"a": number, "k0000001": number} for number in range(20)]},
    "E": {"enum": [2**64 + number for number in range(20)]},
    "k": {"const": [1, 2, 3]},
    "m": {"multipleOf": 0.1},
    "n": {"minimum": 0, "exclusiveMaximum": 2**70},
    "N": {"maximum": 2**70, "exclusiveMinimum": -1},
    "l": {"minLength": 2, "maxLength": MAX_BODY_BYTES},
    "q": {"pattern": "^(a|b|ab)*c?$"},
    "Q": {"pattern": "(x+x+)+y|[0-9]{1,20}$"},
    "r": {"$ref": "#"},
    "d": {"$dynamicRef": "#it", "$dynamicAnchor": "it"},
    "s": {"minItems": 2, "maxItems": MAX_BODY_BYTES},
    "p": {"minProperties": 1, "maxProperties": MAX_BODY_BYTES},
    "0": {"required": ["a", "k0000001"]},
    "g": {"dependentRequired": {"a": ["k0000001"], "k0000001": ["a"]}},
    "t": {"type": ["array", "object"]},
    "T": {"type": ["integer", "string", "array"]},
    "f": {"format": "email"},
}
_ONE_INSIDE: Final[dict[str, Callable[[Any], dict[str, Any]]]] = {
    "i": lambda one: {"items": one},
    "I": lambda one: {"prefixItems": [one]},
    "C": lambda one: {"contains": one, "minContains": 2},
    "M": lambda one: {"contains": one, "maxContains": MAX_BODY_BYTES},
    "U": lambda one: {"unevaluatedItems": one},
    "V": lambda one: {"unevaluatedProperties": one},
    "o": lambda one: {"additionalProperties": one},
    "x": lambda one: {"propertyNames": one},
    "!": lambda one: {"not": one},
}
_TWO_INSIDE: Final[dict[str, Callable[[Any, Any], dict[str, Any]]]] = {
    "A": lambda one, other: {"allOf": [one, other]},
    "Y": lambda one, other: {"anyOf": [one, other]},
    "O": lambda one, other: {"oneOf": [one, other]},
    "F": lambda one, other: {"if": one, "then": other, "else": {"not": other}},
    "P": lambda one, other: {"properties": {"a": one, "k0000001": other}},
    "R": lambda one, other: {"patternProperties": {"^k": one, "1$": other}},
    "D": lambda one, other: {"dependentSchemas": {"a": one, "k0000001": other}},
}
_VALUES: Final = {
    "1": "1#",
    "9": "1844674407370955#",
    "z": "null",
    "b": "true",
    "f": "1#.5",
    "e": "1#e200",
    "0": "0",
    "s": '"k#"',
    "w": '"aaaaaaaa"',
}


def read_case(data: bytes) -> tuple[Any, Unit]:
    """Return the schema and the unit for letters: those of the schema, a line feed, those of the unit."""
    of_schema, _, of_unit = data.partition(b"\n")
    return Generator(of_schema).schema(), Generator(of_unit).unit()
