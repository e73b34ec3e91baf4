"""The arguments digest: equal for requests with the same meaning, different for all others."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.sealing.digest import arguments_digest, canonical_text

numbers = (
    st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-(2**53) - 2, 2**53 + 2).map(float)
)
scalars = st.none() | st.booleans() | numbers | st.text(max_size=5)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=8,
)
arguments = st.dictionaries(st.text(max_size=3), values, max_size=4)


def meaning(value: Any) -> Any:
    """The meaning of a value by the rules, implemented a second time independently, as a comparable value."""
    if isinstance(value, bool) or value is None:
        return repr(value)
    if isinstance(value, float):
        return ("integer", int(value)) if value.is_integer() and abs(value) < 2**53 else ("float", value)
    if isinstance(value, int):
        return ("integer", value)
    if isinstance(value, list):
        return ("list", [meaning(element) for element in value])
    if isinstance(value, dict):
        return ("object", {name: meaning(member) for name, member in value.items()})
    return ("text", value)


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: reordered(value[name]) for name in reversed(value)}
    return [reordered(element) for element in value] if isinstance(value, list) else value


@given(arguments, arguments)
@example({"a": 1}, {"a": 1.0})
@example({"a": 1}, {"a": True})
@example({"a": 2**53}, {"a": 2.0**53})
@example({"a": 10**22}, {"a": 1e22})
@example({"a": "1"}, {"a": 1})
@example({"a": 2**64}, {"a": hex(2**64)})
@example({"a": [1, 2]}, {"a": [2, 1]})
def test_digests_are_equal_exactly_when_the_arguments_mean_the_same(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    assert (arguments_digest(first) == arguments_digest(second)) == (meaning(first) == meaning(second))


@given(arguments)
def test_key_order_never_counts_at_any_depth(value: dict[str, Any]) -> None:
    assert arguments_digest(value) == arguments_digest(reordered(value))


@given(arguments)
def test_a_client_that_writes_the_same_json_otherwise_gets_the_same_digest(value: dict[str, Any]) -> None:
    rewritten = json.loads(json.dumps(value, ensure_ascii=True, indent=2))
    assert arguments_digest(rewritten) == arguments_digest(value)


def test_the_digest_is_sha_256_of_the_canonical_text() -> None:
    value = {"b": [1.0, -0.0, 1.5], "a": {"ü": None, "é": True}}
    text = '{"a":{"é":true,"ü":null},"b":[1,0,1.5]}'.encode()
    assert canonical_text(value) == text
    assert arguments_digest(value) == hashlib.sha256(text).digest()


def test_keys_are_sorted_by_code_point_not_by_utf_16_unit() -> None:
    """U+FFFF sorts before U+1F600, whose UTF-16 form begins with a smaller unit."""
    names = ["\U0001f600", "\uffff", "é", "z", "a", "B", "", "aa", "\x7f"]
    text = canonical_text(dict.fromkeys(names, 0))
    assert list(json.loads(text)) == sorted(names)
    assert list(json.loads(canonical_text({"n": {**dict.fromkeys(names, 0), "f": 0.5}}))["n"]) == sorted([*names, "f"])


def test_integers_are_exact() -> None:
    base = 2**53
    made = {arguments_digest({"n": n}) for n in (base - 1, base, base + 1, base + 2, 2**64 - 1, 2**64, 2**64 + 1)}
    assert len(made) == 7
    assert canonical_text({"n": 2**64 - 1, "m": -(2**63)}) == b'{"m":-9223372036854775808,"n":18446744073709551615}'


def test_a_float_with_an_integral_value_below_two_to_the_53_equals_that_integer() -> None:
    for n in (1, -1, 10**15, 2**53 - 1, -(2**53) + 1):
        assert arguments_digest({"n": float(n)}) == arguments_digest({"n": n})
        assert arguments_digest({"n": [{"m": float(n)}]}) == arguments_digest({"n": [{"m": n}]})


def test_a_float_from_two_to_the_53_on_equals_no_integer() -> None:
    for n in (2**53, -(2**53), 10**16, 10**22):
        assert arguments_digest({"n": float(n)}) != arguments_digest({"n": n})


def test_negative_zero_is_zero() -> None:
    zero = arguments_digest({"n": 0})
    assert arguments_digest({"n": -0.0}) == zero
    assert arguments_digest({"n": 0.0}) == zero


def test_other_floats_have_their_shortest_form() -> None:
    floats = [0.1, 1e22, 5e-324, 1.7976931348623157e308, 1e-7]
    assert canonical_text({"f": floats}) == b'{"f":[0.1,1e+22,5e-324,1.7976931348623157e+308,1e-07]}'
    neighbour = math.nextafter(0.1, 1)
    assert arguments_digest({"f": 0.1}) != arguments_digest({"f": neighbour})


def test_strings_are_as_they_are_without_normalisation() -> None:
    assert arguments_digest({"s": "\u00e9"}) != arguments_digest({"s": "e\u0301"})
    assert arguments_digest({"\u00e9": 0}) != arguments_digest({"e\u0301": 0})
    assert arguments_digest({"s": " a"}) != arguments_digest({"s": "a"})
    assert arguments_digest({"s": "1.0"}) != arguments_digest({"s": "1"})


@pytest.mark.parametrize("nothing", [None, {}, MappingProxyType({})], ids=["null", "empty", "empty mapping"])
def test_no_arguments_null_and_the_empty_object_are_the_same(nothing: Mapping[str, Any] | None) -> None:
    assert arguments_digest(nothing) == hashlib.sha256(b"{}").digest()


@pytest.mark.parametrize("value", [0, False, "", [], {}], ids=repr)
def test_a_null_member_is_neither_absent_nor_another_empty_value(value: object) -> None:
    assert arguments_digest({"a": None}) != arguments_digest({})
    assert arguments_digest({"a": None}) != arguments_digest({"a": value})


def test_any_mapping_is_digested_like_a_dict() -> None:
    assert arguments_digest(MappingProxyType({"b": 1.0, "a": 2})) == arguments_digest({"a": 2, "b": 1})


def test_integers_of_thousands_of_digits_are_exact_and_do_not_raise() -> None:
    """The interpreter refuses to write more than 4300 decimal digits; the digest must not depend on that."""
    huge = 10**20_000
    made = {arguments_digest({"n": n}) for n in (huge, huge + 1, -huge, [huge], hex(huge))}
    assert len(made) == 5


def test_a_hundred_levels_are_digested_and_absurd_nesting_is_a_value_error() -> None:
    def nested(levels: int, innermost: object) -> dict[str, Any]:
        value = innermost
        for _ in range(levels):
            value = {"a": [value]}
        return {"a": value}

    assert arguments_digest(nested(50, 1.0)) == arguments_digest(nested(50, 1))
    assert arguments_digest(nested(50, 1)) != arguments_digest(nested(49, 1))
    for innermost in (1, 1.0):
        with pytest.raises(ValueError, match="nested too deeply"):
            arguments_digest(nested(100_000, innermost))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_does_not_have_are_refused(number: float) -> None:
    with pytest.raises(ValueError, match="not a JSON number"):
        arguments_digest({"n": [number]})


def test_a_lone_surrogate_is_refused() -> None:
    for value in ({"s": "\ud800"}, {"\ud800": 1}, {"s": "\ud800", "f": 0.5}):
        with pytest.raises(ValueError, match="surrogates"):
            arguments_digest(value)


@pytest.mark.parametrize("value", [b"bytes", (1, 2), {1, 2}, object()], ids=lambda value: type(value).__name__)
def test_a_value_that_no_parser_gives_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="not a JSON value"):
        arguments_digest({"a": [value]})
