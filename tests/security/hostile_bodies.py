"""JSON that takes the most time and memory for its size, as much of it as a body may have."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gateway.protocol.strict_json import EXTRA_VALUES, MAX_VALUES

DEAR: Final = 1 + EXTRA_VALUES
"""How often an array, an object or a dear number counts."""

OWN_VALUES: Final = 100
"""Room for the values of the rest of the message."""


@dataclass(frozen=True)
class Kind:
    """A value that is repeated.

    Args:
        units: its text, in which `#` stands for a number that is different each time.
        weight: how often each counts.
        is_object: whether the texts are members of an object rather than items of an array.
    """

    units: str
    weight: int = 1
    is_object: bool = False

    def count(self, size: int, values: int = MAX_VALUES) -> int:
        """Return how many units JSON of this size has, if it may have so many values."""
        return sum(1 for _ in self._units(size, values))

    def filled(self, size: int, values: int = MAX_VALUES) -> str:
        """Return JSON of exactly this size, with as many units as it may have, followed by text."""
        opening, closing, rest = ("{", "}", '"":"') if self.is_object else ("[", "]", '"')
        units = "".join(self._units(size, values))
        pad = size - len(f'{opening}{units}{rest}"{closing}'.encode())
        return f'{opening}{units}{rest}{"a" * pad}"{closing}'

    def _units(self, size: int, values: int) -> Iterator[str]:
        room, left = size - len('{"":""}'), values - OWN_VALUES
        for number in itertools.count() if self.units else ():
            unit = self.units.replace("#", str(number)) + ","
            room, left = room - len(unit.encode()), left - self.weight
            if room < 0 or left < 0:
                return
            yield unit


def nested(opening: str, closing: str, depth: int = 90) -> Kind:
    """Return values that contain one another."""
    containers = sum((opening * depth).count(bracket) for bracket in "[{")
    return Kind(opening * depth + "1" + closing * depth, 1 + EXTRA_VALUES * containers)


TEXT: Final = Kind("")
KINDS: Final[Mapping[str, Kind]] = {
    "empty arrays": Kind("[]", DEAR),
    "empty objects": Kind("{}", DEAR),
    "objects with one member": Kind('{"a":1}', DEAR),
    "objects with different names": Kind('{"a#":1}', DEAR),
    "arrays 90 deep": nested("[", "]"),
    "objects 90 deep": nested('{"a":', "}"),
    "arrays and objects 80 deep": nested('[{"a":', "}]", 40),
    "rows of numbers": Kind("[1.5,2.25,#,4,5,6,7,8,9,10]", 9 + DEAR),
    "rows of objects": Kind('{"id":#,"name":"n#","size":1.5}', 2 + DEAR),
    "zeros": Kind("0"),
    "different integers": Kind("#"),
    "large integers": Kind("18446744073709551616"),
    "integers of 308 digits": Kind("9" * 308),
    "fractions": Kind("0.1"),
    "different fractions": Kind("#.5"),
    "whole numbers with a point": Kind("1.0"),
    "halves of large numbers": Kind("9007199254740993.0"),
    "fractions of 305 digits": Kind("1" * 303 + ".5"),
    "small fractions": Kind("0.0000#", DEAR),
    "exponents": Kind("1e5", DEAR),
    "exponents of one digit": Kind("#e-5", DEAR),
    "exponents of two digits": Kind("1e-30", DEAR),
    "large exponents": Kind("1e300", DEAR),
    "small exponents": Kind("1e-300", DEAR),
    "subnormal numbers": Kind("5e-324", DEAR),
    "empty texts": Kind('""'),
    "short texts": Kind('"a"'),
    "different texts": Kind('"t#"'),
    "escapes": Kind(r'"\n"'),
    "escapes in hexadecimal": Kind(r'"\u00e9"'),
    "emoji": Kind('"😀"'),
    "commas and brackets in texts": Kind('",[{,[{"'),
    "nulls": Kind("null"),
    "booleans": Kind("true"),
    "names": Kind('"k#":1', is_object=True),
    "names of fractions": Kind('"k#":0.1', is_object=True),
    "names of exponents": Kind('"k#":1e-9', DEAR, is_object=True),
    "small fractions among texts": Kind('0.00001,""', 1 + DEAR),
}
"""By name."""

LONG_TEXTS: Final[Mapping[str, Callable[[int], str]]] = {
    "a text of letters": lambda size: _text("a", size),
    "a text of umlauts": lambda size: _text("ä", size),
    "a text of emoji": lambda size: _text("😀", size),
    "a text of escapes": lambda size: _text(r"\n", size),
    "a text of escaped quotes": lambda size: _text(r"\"", size),
    "a text of escaped backslashes": lambda size: _text("\\\\", size),
    "a text of escaped colons": lambda size: _text(r"\u003a", size),
    "a text of commas": lambda size: _text(",", size),
    "a text of brackets": lambda size: _text("[{", size),
    "a text of exponents": lambda size: _text("1e9", size),
    "a text of digits": lambda size: _text("7", size),
    "objects of many numbers, and a text of commas": lambda size: _with_a_text_of_commas(size, "0"),
    "objects of many texts, and a text of commas": lambda size: _with_a_text_of_commas(size, '""'),
}
"""JSON of a size with long texts, by name."""


def _text(unit: str, size: int) -> str:
    count = (size - 2) // len(unit.encode())
    return f'"{unit * count}{"a" * (size - 2 - count * len(unit.encode()))}"'


def _with_a_text_of_commas(size: int, value: str) -> str:
    """Return values that are counted twice and read three times: texts, escapes and digits look suspicious.

    Members of eight bytes put a digit into every 16th byte, where long numbers are searched.
    """
    unit = Kind("{" + ",".join(f'"{name:02}":{value}' for name in range(100)) + "}", 99 + DEAR)
    values = unit.filled(size * 9 // 10).removesuffix("]")
    text = _text(",", size - len(values) - len(r',"\\\"\u003a"]'))
    return values + r',"\\\"\u003a' + text[1:] + "]"
