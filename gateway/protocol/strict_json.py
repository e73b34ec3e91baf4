"""Pure: JSON that every parser reads the same way (RFC 8259, restricted as RFC 7493, I-JSON, advises).

The gateway seals a digest of the arguments into its state, and other parties, such as proxies and audit logs, read the
same bytes. So a body that two parsers could read differently is refused: duplicate names, lone surrogates, numbers out
of range, a byte order mark, invalid UTF-8.

`msgspec` refuses all of these except duplicate names. Finding them needs no second parser, because every member of an
object has one colon: if the value, encoded again, has fewer colons than the body, a member was lost.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from math import inf
from typing import Any, Final, TypeAlias

import msgspec

from gateway.errors import ParseError, TooDeep, TooManyValues

MAX_DEPTH: Final = 100
"""How deep arrays and objects may nest by default; the outermost one is level 1."""

MAX_VALUES: Final = 150_000
"""How many values a body may have by default, as `_values` counts them: enough for 10,000 rows of ten numbers. Each
takes time and memory, however short."""

EXTRA_VALUES: Final = 4
"""As many further values are counted for an array, an object, and a number that is dear to read."""

DECODED_TIMES: Final = 15
"""How many times the bytes that a body weighs it may take in memory when it is decoded."""

_SIZES: Final = ((b",", 40), (b'"', 32), (b"[", 100), (b"{", 150), (b":", 40))
"""How many bytes of memory each of these marks stands for. They exceed what was measured with the worst values. A comma
is followed by a number or a reference, and a text has two quotes. Arrays and objects have room for several values."""

_INNER_MARKS: Final = tuple(mark for mark, _ in _SIZES if mark != b'"')

_LONG_BYTES: Final = 4096
"""Longer bodies may have a long text in their middle; see `_without_middle`."""

_CHARACTER_BYTES: Final = 4
"""How much of a text's memory each of its bytes may take: one emoji makes all characters as wide."""

_ASTRAL: Final = bytes(range(0xF0, 0xF5))
"""The first bytes of characters, such as emoji, that make all others of their text take `_CHARACTER_BYTES`."""

MAX_NUMBER_DIGITS: Final = 308
"""How many digits a number may have in a row, so that every accepted integer also converts to a float."""

MAX_PLAIN_EXPONENTS: Final = 20
"""If there are more exponents than this, `float` reads the numbers; see `_has_many_exponents`."""

_decode = msgspec.json.Decoder().decode
_decode_exponents = msgspec.json.Decoder(float_hook=float).decode
_encode = msgspec.json.Encoder().encode

_BACKSLASH: Final = ord("\\")

_ALL_DIGITS_TO_ZERO: Final = bytes.maketrans(b"123456789", b"000000000")
_TOO_MANY_DIGITS: Final = b"0" * (MAX_NUMBER_DIGITS + 1)

# A run of too many digits is also a run in every 16th byte, which is cheap to search for.
_SAMPLE_EVERY: Final = 16
_TOO_MANY_SAMPLED: Final = b"0" * ((MAX_NUMBER_DIGITS + 1) // _SAMPLE_EVERY)

_EXPONENTS_FROM_BYTES: Final = 256
_TO_EXPONENT: Final = bytes.maketrans(b"123456789E", b"000000000e")

PIECE_BYTES: Final = 2**18
"""How much of a text is taken at once by work that makes many objects of it. No other thread runs meanwhile."""

_BRACKET_TO_STEP: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[{]}"))


Pause: TypeAlias = Callable[[], object]
"""Lets other threads run, which compiled code does not do by itself."""


def decode(body: bytes, max_depth: int = MAX_DEPTH, max_values: int = MAX_VALUES, pause: Pause | None = None) -> Any:
    """Read one JSON value from `body`.

    Values are counted before any of them is made. Integers are exact, floats are finite. `pause` is called between
    steps that may take long.

    Raises:
        TooManyValues: the body has more than `max_values`.
        TooDeep: its arrays and objects nest deeper than `max_depth`.
        ParseError: the body is empty, not JSON or not UTF-8, starts with a byte order mark, or repeats a name in one
            object. Or it has a lone surrogate, a number out of range, or a number with more than `MAX_NUMBER_DIGITS`
            digits. No input raises anything else.
    """
    # Each test is cheap and never misses; a suspicious body is then checked exactly.
    plain = _refuse_costly(body, max_values, pause)
    short = body if len(body) < _LONG_BYTES else _without_middle(body)
    many_exponents = (
        len(body) > _EXPONENTS_FROM_BYTES and short.count(b",") >= MAX_PLAIN_EXPONENTS and _has_many_exponents(body)
    )
    try:
        value = _decode_exponents(body) if many_exponents else _decode(body)
        if pause is not None:
            pause()
        encoded = _encode(value)
    except UnicodeDecodeError:
        raise ParseError("The body is not valid UTF-8") from None
    except ValueError as error:
        raise ParseError(f"The body is not valid JSON: {error}") from None
    except RecursionError:
        raise TooDeep(max_depth) from None
    # `float` turns a number out of range into infinity, which is encoded as `null`.
    if many_exponents and encoded.count(b"null") != body.count(b"null"):
        _refuse_infinity(value)
    # `in` is not cheap: before it searches for bytes, CPython creates an error message because they are not an integer.
    if encoded != body and (
        _without_middle(encoded).count(b":") != short.count(b":")
        or (body.find(_BACKSLASH) >= 0 and body.find(b"\\u003") >= 0)
    ):
        _refuse_duplicate_names(body, encoded)
    if short.count(b"[") + short.count(b"{") > max_depth:
        _refuse_deep_nesting(plain or _without_strings(body, pause), max_depth)
    return value


def _refuse_costly(body: bytes, max_values: int, pause: Pause | None) -> bytes:
    """Refuse too many values and long numbers. Return the body without its texts if that was needed, else nothing."""
    plain = b""
    # The shortest value is one byte. Texts may contain anything.
    if len(body) > max_values // (1 + EXTRA_VALUES) and _values(body) > max_values:
        plain = _without_strings(body, pause)
        if _values(plain) > max_values:
            raise TooManyValues(max_values, 1 + EXTRA_VALUES)
        if pause is not None:
            pause()
    if body[::_SAMPLE_EVERY].translate(_ALL_DIGITS_TO_ZERO).find(_TOO_MANY_SAMPLED) >= 0:
        plain = plain or _without_strings(body, pause)
        if _TOO_MANY_DIGITS in plain.translate(_ALL_DIGITS_TO_ZERO):
            raise ParseError(f"The body has a number with more than {MAX_NUMBER_DIGITS} digits")
    return plain


def encode(value: Any) -> bytes:
    """Encode `value` as JSON on one line, without spaces. A `msgspec.Raw` inside is copied unchanged.

    Raises:
        TypeError: a part of the value has no JSON form.
        ValueError: a string contains a lone surrogate.
        RecursionError: the value contains itself.
    """
    return _encode(value)


def weight(body: bytes) -> int:
    """Return as how many bytes a body counts: its size, or more if its values take more than `DECODED_TIMES` as many.

    This takes a small part of the time that decoding takes, and is for bodies that have not been decoded. Marks in
    texts count like any other: only a text that is full of them weighs more than its size.
    """
    size = len(body)
    return max(size, (_CHARACTER_BYTES * size + _marked_bytes(body)) // DECODED_TIMES)


def decoded_bytes(body: bytes) -> int:
    """Return how much memory JSON as `encode` writes it takes at most when it is decoded.

    This is quick, because marks in texts count like any other. Ordinary JSON counts about twice what it takes.
    """
    width = 1
    if not body.isascii():  # a text that was encoded keeps that form, too
        width += 2 if len(body) == len(body.translate(None, _ASTRAL)) else _CHARACTER_BYTES
    return width * len(body) + _marked_bytes(body)


def _marked_bytes(text: bytes) -> int:
    short, bytes_in_all = (text if len(text) < _LONG_BYTES else _without_middle(text)), 0
    for mark, bytes_each in _SIZES:
        bytes_in_all += bytes_each * short.count(mark)
    return bytes_in_all


def _without_middle(body: bytes) -> bytes:
    """Return a long body without the text across its middle, such as a sealed state, if that has none of the marks.

    Searching for rare bytes takes a twentieth of the time that counting takes.
    """
    middle = len(body) // 2
    start, end = body.rfind(b'"', 0, middle), body.find(b'"', middle)
    if start < 0 or end - start < middle:
        return body
    for mark in _INNER_MARKS:
        if body.find(mark, start, end) >= 0:
            return body
    return body[: start + 1] + body[end:]


def _values(text: bytes) -> int:
    """Count the values of JSON text, and the dear ones further times; too many if the text has strings.

    Each value follows a comma, or is the first one of an array or object, which counts instead of it.
    """
    dear = text.count(b"[") + text.count(b"{") + text.count(b"0.0000")
    return text.count(b",") + EXTRA_VALUES * (dear + text.translate(_TO_EXPONENT, b"+-").count(b"0e0"))


def _has_many_exponents(body: bytes) -> bool:
    """Return whether a body may contain many numbers such as `1e300`, inside or outside of its strings.

    `msgspec` reads most numbers in 0.03 µs but some of these in 14 µs, so a large body of them would take seconds.
    Each further number needs a comma. A sealed state, however long, has none.
    """
    return body.translate(_TO_EXPONENT, b"+-").count(b"0e00") > MAX_PLAIN_EXPONENTS


def _refuse_infinity(value: Any) -> None:
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
        elif isinstance(part, float) and part in (inf, -inf):
            raise ParseError("The body has a number that is out of range")


def _refuse_duplicate_names(body: bytes, encoded: bytes) -> None:
    """Compare the colons exactly. Those in `body` may be escaped; those in `encoded` are not."""
    escapes = body.replace(rb"\\", b"")
    colons = body.count(b":") + escapes.count(rb"\u003a") + escapes.count(rb"\u003A")
    if colons != encoded.count(b":"):
        raise ParseError("The body repeats a name in one object")


def _refuse_deep_nesting(plain: bytes, max_depth: int) -> None:
    """Measure the depth of valid JSON without texts: the highest running sum of opening and closing brackets."""
    steps = plain.translate(_BRACKET_TO_STEP, _NO_BRACKETS)
    if max(accumulate(memoryview(steps).cast("b")), default=0) > max_depth:
        raise TooDeep(max_depth)


def _without_strings(body: bytes, pause: Pause | None) -> bytes:
    """Empty every string of valid JSON, piece by piece."""
    outside: list[bytes] = []
    is_inside, at = False, 0
    while at < len(body):
        if pause is not None:
            pause()
        piece = body[at : at + PIECE_BYTES]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:  # the last backslash escapes what follows
            piece = body[at : at + len(piece) + 1]
        at += len(piece)
        # Without escaped backslashes and quotes, every quote is a delimiter.
        parts = piece.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')
        if not is_inside:
            outside.append(b'""'.join(parts[::2]))
        elif len(parts) > 1:
            outside.append(b'""' + b'""'.join(parts[1::2]))
        if len(parts) % 2 == 0:
            is_inside = not is_inside
    return b"".join(outside)
