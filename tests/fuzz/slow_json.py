"""A reader of strict JSON that is simple to verify: one character at a time, one rule at a time.

It is the reference for `gateway.protocol.strict_json`, which is fast because it skips most of its input.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

MAX_DEPTH: Final = 100
MAX_DIGITS: Final = 308

_BLANKS: Final = " \t\n\r"
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?P<fraction>\.[0-9]+)?(?P<exponent>[eE][+-]?[0-9]+)?")
_ESCAPES: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORDS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None}
_HIGH: Final = range(0xD800, 0xDC00)
_LOW: Final = range(0xDC00, 0xE000)


class NotStrict(Exception):
    """The text is not JSON that every reader reads alike."""


def read(body: bytes) -> Any:
    """Return the value that a text of strict JSON stands for.

    Raises:
        NotStrict: it is not strict JSON.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise NotStrict("no UTF-8") from None
    reader = _Reader(text)
    value = reader.value(1)
    reader.blanks()
    if reader.place != len(text):
        raise NotStrict("more than one value")
    return value


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0

    def peek(self) -> str:
        return self.text[self.place : self.place + 1]

    def take(self, expected: str) -> bool:
        if self.peek() != expected:
            return False
        self.place += 1
        return True

    def blanks(self) -> None:
        while self.peek() and self.peek() in _BLANKS:
            self.place += 1

    def value(self, depth: int) -> Any:
        self.blanks()
        match self.peek():
            case "{":
                return self.members(depth)
            case "[":
                return self.elements(depth)
            case '"':
                return self.string()
        for word, value in _WORDS.items():
            if self.text.startswith(word, self.place):
                self.place += len(word)
                return value
        return self.number()

    def members(self, depth: int) -> dict[str, Any]:
        self.enter(depth)
        found: dict[str, Any] = {}
        self.blanks()
        if self.take("}"):
            return found
        while True:
            self.blanks()
            name = self.string()
            if name in found:
                raise NotStrict("a name twice")
            self.blanks()
            if not self.take(":"):
                raise NotStrict("no colon")
            found[name] = self.value(depth + 1)
            self.blanks()
            if self.take("}"):
                return found
            if not self.take(","):
                raise NotStrict("no comma")

    def elements(self, depth: int) -> list[Any]:
        self.enter(depth)
        found: list[Any] = []
        self.blanks()
        if self.take("]"):
            return found
        while True:
            found.append(self.value(depth + 1))
            self.blanks()
            if self.take("]"):
                return found
            if not self.take(","):
                raise NotStrict("no comma")

    def enter(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise NotStrict("too deep")
        self.place += 1

    def string(self) -> str:
        if not self.take('"'):
            raise NotStrict("no text")
        characters: list[str] = []
        while not self.take('"'):
            character = self.peek()
            self.place += 1
            if not character or character < " ":
                raise NotStrict("a text without end or with a control character")
            characters.append(self.escape() if character == "\\" else character)
        return "".join(characters)

    def escape(self) -> str:
        kind = self.peek()
        self.place += 1
        if kind != "u":
            if kind not in _ESCAPES:
                raise NotStrict("an unknown escape")
            return _ESCAPES[kind]
        unit = self.unit()
        if unit in _LOW:
            raise NotStrict("half a character")
        if unit not in _HIGH:
            return chr(unit)
        if not (self.take("\\") and self.take("u")):
            raise NotStrict("half a character")
        low = self.unit()
        if low not in _LOW:
            raise NotStrict("half a character")
        return chr(0x10000 + ((unit - _HIGH.start) << 10) + (low - _LOW.start))

    def unit(self) -> int:
        digits = self.text[self.place : self.place + 4]
        if not re.fullmatch(r"[0-9A-Fa-f]{4}", digits):
            raise NotStrict("no escape")
        self.place += 4
        return int(digits, 16)

    def number(self) -> int | float:
        found = _NUMBER.match(self.text, self.place)
        if found is None:
            raise NotStrict("no value")
        self.place = found.end()
        if any(len(run) > MAX_DIGITS for run in re.findall(r"[0-9]+", found[0])):
            raise NotStrict("too many digits")
        if not found["fraction"] and not found["exponent"]:
            return int(found[0])
        number = float(found[0])
        if not math.isfinite(number):
            raise NotStrict("too large")
        return number
