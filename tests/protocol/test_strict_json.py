"""One reading of a body, or none."""

from __future__ import annotations

import json
import math
import re
import sys
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.errors import ParseError, TooManyValues
from gateway.protocol import strict_json
from gateway.protocol.strict_json import (
    EXTRA_VALUES,
    MAX_DEPTH,
    MAX_NUMBER_DIGITS,
    MAX_PLAIN_EXPONENTS,
    decode,
    encode,
)
from gateway.runtime.compilation import is_compiled
from tests.cpu_time import least_seconds


class _RefusedError(Exception):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise _RefusedError
    return dict(pairs)


def _constant(_: str) -> Any:
    raise _RefusedError


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 0


def _number(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _RefusedError
    return value


def slow_decode(body: bytes) -> Any:
    """The same rules written with the standard library, for comparison."""
    try:
        text = body.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_number)
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise _RefusedError from error
    if _depth(value) > MAX_DEPTH:
        raise _RefusedError
    return value


PIECES = [
    *[bytes([byte]) for byte in b'{}[],:"\\/019-+.eEaunt \t\n\r\x0b\x00\x1f\x7f\xff'],
    *[b'\\"', b"\\\\", b"\\n", b"\\u003a", b"\\u003A", b"\\u00", b"3a", b"\\ud83d", b"\\ude00", b"\\ud800"],
    *[
        b'"a"',
        b'"\\u0061"',
        b'"a":',
        b'"a":1',
        b'":"',
        b'"\\\\"',
        b'"\\\\u003a"',
        b"NaN",
        b"Infinity",
        b"null",
        b"true",
    ],
    *["é".encode(), "😀".encode(), b"\xed\xa0\x80", b"\xef\xbb\xbf", b"1e400", b"1e-400", b"-0"],
    *[b"1" * 30, b"1" * 309, b"1" * 4301, b"[" * 99, b"]" * 99, b"[" * 10_000, b'{"a":' * 99],
]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=20,
)


@st.composite
def json_texts(draw: st.DrawFn) -> bytes:
    """JSON in any dress: spaces, escapes, and now and then a repeated name."""
    value = draw(json_values)
    space = draw(st.sampled_from(["", " ", "\n\t"]))
    text = json.dumps(
        value,
        ensure_ascii=draw(st.booleans()),
        separators=("," + space, space + ":" + space),
        indent=draw(st.sampled_from([None, 1])),
    )
    if draw(st.booleans()):
        text = text.replace('"a"', '"\\u0061"').replace(":", draw(st.sampled_from([":", ": "])))
    return text.encode()


@st.composite
def mutated_json(draw: st.DrawFn) -> bytes:
    """JSON with a few pieces cut out or put in."""
    body = draw(json_texts())
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(body)))
        end = draw(st.integers(start, min(len(body), start + 4)))
        body = body[:start] + draw(st.sampled_from(PIECES)) + body[end:]
    return body


@given(json_values)
def test_a_compact_body_is_read_as_it_was_written(value: Any) -> None:
    assert decode(encode(value)) == value


@given(
    st.binary() | json_texts() | mutated_json() | st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join),
)
@example(b'{"a":1,"\\u0061":2}')
@example(b'{"\\u003a":1,"\\u003A":2}')
@example(b'{"a":":\\u003a","a":1}')
@example(b'{"a":"\\\\u003a","a":":"}')
@example(b'{"a":"\\\\\\u003a"}')
@example(b'{"a": "\\\\u003a"}')
@example(b'["\\u003A"]')
@example(b'[{"a":1},{"a":2}]')
@example(b'{"a":{"a":{"a":1}}}')
def test_it_reads_what_a_slow_strict_reader_reads_and_refuses_the_rest(body: bytes) -> None:
    try:
        expected = slow_decode(body)
    except _RefusedError:
        with pytest.raises(ParseError):
            decode(body)
        return
    try:
        value = decode(body)
    except ParseError as error:
        assert "digits" in error.message  # noqa: PT017 (the one rule that the slow reader lacks)
        return
    assert value == expected
    assert encode(value) == encode(expected)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"\xef\xbb\xbf{}",
        b"{} {}",
        b"{}\x00",
        b"NaN",
        b"[-Infinity]",
        b"1e400",
        b'"\\ud800"',
        b'"\\ud800\\u0041"',
        b'"\\ude00\\ud83d"',
        b'"\xed\xa0\x80"',
        b'"\xff"',
        b'{"\xc0\x80":1}',
        '{"a":1}'.encode("utf-16"),
        b'"\x1f"',
        b"[1,]",
        b"01",
        b"{'a':1}",
        b'{"a":1,"a":1}',
        b'{"x":[{"a":1,"b":2,"a":3}]}',
    ],
)
def test_a_body_that_two_readers_could_read_differently_is_refused(body: bytes) -> None:
    with pytest.raises(ParseError):
        decode(body)


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_nesting_stops_at_the_limit(opening: bytes) -> None:
    closing = b"]" if opening == b"[" else b"}"

    def nested(depth: int) -> bytes:
        return opening * depth + b"1" + closing * depth

    decode(nested(MAX_DEPTH))
    for depth in (MAX_DEPTH + 1, 500, 10_000, 500_000):
        with pytest.raises(ParseError, match=f"deeper than {MAX_DEPTH}"):
            decode(nested(depth), max_values=sys.maxsize)
    with pytest.raises(ParseError):
        decode(opening * 100_000, max_values=sys.maxsize)


def test_brackets_side_by_side_or_inside_strings_do_not_count_as_depth() -> None:
    side_by_side = {"rows": [[{"n": n}] for n in range(1_000)]}
    assert decode(encode(side_by_side)) == side_by_side
    for text in ("[" * 1_000, '\\"[' * 1_000, "]" * 1_000):
        assert decode(encode([text])) == [text]


def test_closing_brackets_in_a_string_hide_no_depth() -> None:
    hidden = b'["' + b"]" * 1_000 + b'",' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"]"
    with pytest.raises(ParseError, match="deeper"):
        decode(hidden)


def test_an_integer_is_exact_and_its_length_limited() -> None:
    longest = 10**MAX_NUMBER_DIGITS - 1
    assert decode(encode([longest, -longest])) == [longest, -longest]
    assert math.isfinite(float(longest))
    for digits in (MAX_NUMBER_DIGITS + 1, 4_300, 4_301, 1_000_000):
        with pytest.raises(ParseError):
            decode(b'{"pad":"' + b"x" * 20 + b'","n":' + b"7" * digits + b"}")


@given(st.integers(0, 40), st.integers(MAX_NUMBER_DIGITS - 2, MAX_NUMBER_DIGITS + 20))
def test_a_long_number_is_noticed_wherever_it_stands(offset: int, digits: int) -> None:
    body = b" " * offset + b"1234567890" * (digits // 10) + b"1" * (digits % 10)
    if digits <= MAX_NUMBER_DIGITS:
        assert decode(body) == int(body)
    else:
        with pytest.raises(ParseError, match="digits"):
            decode(body)


def test_digits_in_a_string_may_be_many() -> None:
    for text in ("1" * 10_000, '\\"' + "1" * 10_000):
        assert decode(encode({"n": text})) == {"n": text}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'"\xff"', "UTF-8"),
        (b"", "not valid JSON"),
        (b"[1,]", "byte 3"),
        (b'{"a":1,"a":1}', "repeats a name"),
        (b"[" * 10_000, "nests deeper"),
        (b"1" * 309, "digits"),
        (b"1" * 4_301, "digits"),
    ],
)
def test_the_error_says_what_is_wrong_with_the_body(body: bytes, words: str) -> None:
    with pytest.raises(ParseError, match=words):
        decode(body)


def test_output_is_one_line() -> None:
    assert encode({"a": "x\ny", "é": [1, 2.5, None, True]}) == '{"a":"x\\ny","é":[1,2.5,null,true]}'.encode()


MANY = MAX_PLAIN_EXPONENTS + 1
EXPONENTS = (b"1e300", b"4.9e-324", b"-1.7976931348623157E+308", b"1e-999", b"-0e00", b"2.5e10")


def many(number: bytes, more: bytes = b'"null", null, "\\u006eull"') -> bytes:
    """Return a body that is long and has many exponents."""
    return b"[" + b",".join([number] * MANY) + b', "' + b" " * 4096 + b'",' + more + b"]"


@pytest.mark.parametrize("number", EXPONENTS)
def test_many_exponents_are_read_like_few(number: bytes) -> None:
    read = decode(many(number))
    assert read == slow_decode(many(number))
    assert {type(one) for one in read[:MANY]} == {float}


@pytest.mark.parametrize("more", [b"1e400", b"-1e309", b'{"a": [1e400]}', b'null, 1e400, "null"'])
def test_a_number_out_of_range_is_refused_among_many_exponents(more: bytes) -> None:
    with pytest.raises(ParseError):
        decode(many(b"1e10", more))


@pytest.mark.parametrize("number", [b"1e300", b"4.9e-324", b"1.7976931348623157e308"])
def test_no_number_takes_long_to_read(number: bytes) -> None:
    body = b"[" + b",".join([number] * 10_000) + b"]"
    assert least_seconds(decode, body) < 6 * least_seconds(json.loads, body)


def count_slowly(value: Any) -> int:
    """Count the values of a body as the limit does: containers and numbers that are dear count five times."""
    dear = 1 + EXTRA_VALUES
    if isinstance(value, dict):
        return dear + sum(count_slowly(member) for member in value.values())
    if isinstance(value, list):
        return dear + sum(count_slowly(element) for element in value)
    return 1


hostile_texts = st.text(alphabet='[]{},:"\\0123456789.eE+- aä', max_size=30)
hostile_values = st.recursive(
    st.none() | st.booleans() | st.integers(-999, 999) | hostile_texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(hostile_texts, inner, max_size=5),
    max_leaves=30,
)


@pytest.mark.slow
@given(st.lists(hostile_values, min_size=30, max_size=60), st.sampled_from([None, 1]))
def test_values_are_counted_whatever_is_in_texts(value: list[Any], indent: int | None) -> None:
    """Nearly: an empty container counts as one that has a value, and the first value of each counts with it."""
    body = json.dumps(value, indent=indent, ensure_ascii=False).encode()
    exact = count_slowly(value)
    assert decode(body, max_values=exact) == value
    with pytest.raises(TooManyValues):
        decode(body, max_values=(exact - 1) // (2 * (1 + EXTRA_VALUES)))


@pytest.mark.slow
@pytest.mark.skipif(is_compiled(), reason="the size of a piece is compiled in")
@given(st.lists(hostile_values, max_size=10), st.integers(1, 9))
def test_texts_are_left_out_alike_however_they_are_cut(value: list[Any], size: int) -> None:
    body = json.dumps(value, ensure_ascii=False).encode()
    pauses: list[None] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strict_json, "PIECE_BYTES", size)
        plain = strict_json._without_strings(body, lambda: pauses.append(None))
    assert plain == re.sub(rb'"(?:[^"\\]|\\.)*"', b'""', body, flags=re.DOTALL)
    assert len(body) / (size + 1) <= len(pauses) <= -(-len(body) // size)


def test_other_threads_may_run_between_the_steps_of_decoding() -> None:
    body, pauses = b"[" + b'"a",' * 2**18 + b'"1111"]', list[None]()
    assert decode(body, max_values=2**19, pause=lambda: pauses.append(None)) == json.loads(body)
    assert len(pauses) == 1
    with pytest.raises(TooManyValues):
        decode(body, max_values=2**17, pause=lambda: pauses.append(None))
    assert len(pauses) > len(body) / strict_json.PIECE_BYTES


@pytest.mark.parametrize("unit", ["[]", "{}", '{"a":1}', "1e9", "1E+9", "-3.5e-7", "0.00001", "-0.0000"])
def test_a_dear_value_counts_five_times(unit: str) -> None:
    body = f"[{','.join([unit] * 1000)}]".encode()
    decode(body, max_values=5003)
    with pytest.raises(TooManyValues, match=r"more than 4990 JSON values.* counts as 5"):
        decode(body, max_values=4990)


@pytest.mark.parametrize("unit", ["1", "12.5", "null", "true", "false", '""', r'"1e9[{,\\\""', '"0.0000"', "0.001"])
def test_any_other_value_counts_once_whatever_is_in_a_text(unit: str) -> None:
    body = f"[{','.join([unit] * 1000)}]".encode()
    decode(body, max_values=1003)
    with pytest.raises(TooManyValues):
        decode(body, max_values=990)


@pytest.mark.parametrize("text", [",", "[", "{", "[{,", "1e9", "0.0000", r"\",", "\\\\,", r"\u005b"])
def test_a_text_of_a_megabyte_is_one_value(text: str) -> None:
    body = f'["{text * (2**20 // len(text))}"]'.encode()
    assert decode(body) == json.loads(body)


def test_tables_fit() -> None:
    numbers = [[round(row * column * 1.37, 2) for column in range(10)] for row in range(10_000)]
    assert decode(encode({"rows": numbers})) == {"rows": numbers}
    rows = [{"id": row, "name": f"n{row}", "tags": [], "size": 1.5, "ok": True} for row in range(10_000)]
    assert decode(encode({"rows": rows})) == {"rows": rows}


def test_values_are_counted_before_any_of_them_is_made() -> None:
    broken = b"[" + b"[]," * 100_000 + b"nonsense"
    with pytest.raises(TooManyValues):
        decode(broken)


@given(st.binary(max_size=200))
def test_no_bytes_make_the_count_fail(data: bytes) -> None:
    for body in (data, data * 40):
        try:
            decode(body, max_values=20)
        except (ParseError, TooManyValues):
            continue


@pytest.mark.parametrize("seen", [0, 1, 63, 64, 65, 200])
@pytest.mark.parametrize("ends", [b"", b" " * 5000])
def test_a_long_body_weighs_what_its_marks_weigh_wherever_they_are(seen: int, ends: bytes) -> None:
    marks = b"[]," * seen
    together = b" " * 5000 + marks + ends
    apart = b" " * 5000 + (b" " * 20).join([b"[],"] * seen) + ends
    counted = 140 * seen
    assert strict_json.decoded_bytes(together) == len(together) + counted
    assert strict_json.decoded_bytes(apart) == len(apart) + counted


@pytest.mark.parametrize("colons", [10, 64, 65, 300])
def test_a_repeated_name_is_found_in_a_long_body_with_a_few_or_many_members(colons: int) -> None:
    members = [f'"{index}": 1' for index in range(colons)]
    body = "{" + ", ".join([*members, '"text": "' + "x" * 5000 + '"']) + "}"
    assert len(decode(body.encode())) == colons + 1
    with pytest.raises(ParseError):
        decode(body.replace('"0"', '"1"').encode())
