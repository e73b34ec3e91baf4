"""The values that a journal may hold: JSON and nothing else (replay rule 7)."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from datetime import date
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.values import MAX_DEPTH, Json, copy_json, json_value
from gateway.errors import AuthoringError
from gateway.sealing.packing import pack, unpack

JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


class Colour(str, enum.Enum):  # noqa: UP042 - the kind that turns into "Colour.RED"
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Ratio(float):
    """An author's own kind of float."""

    def __float__(self) -> float:
        return 0.0


@given(JSON_VALUES)
def test_json_stays_as_it_is_and_travels_unchanged(value: Any) -> None:
    made = json_value(value, "it")
    assert made == value
    assert unpack(pack(made)) == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ((1, (2, 3)), [1, [2, 3]]),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (Colour.RED, "red"),
        ({Colour.RED: Colour.RED}, {"red": "red"}),
        (Level.HIGH, 3),
        (Ratio(0.5), 0.5),
        (2**70, 2**70),
        (True, True),
    ],
)
def test_values_that_read_as_json_become_plain_json(value: Any, expected: Any) -> None:
    made = json_value(value, "it")
    assert made == expected
    assert json.loads(json.dumps(made)) == made

    def plain(part: Json) -> bool:
        if isinstance(part, dict):
            return type(part) is dict and all(type(name) is str and plain(item) for name, item in part.items())
        if isinstance(part, list):
            return type(part) is list and all(map(plain, part))
        return type(part) in (str, int, float, bool, type(None))

    assert plain(made)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (object(), "it: object is not a JSON value"),
        ({"a": [1, {2}]}, "it.a[1]: set is not"),
        ([b"x"], "it[0]: bytes is not"),
        ({"when": date(2024, 1, 1)}, "it.when: date is not"),
        (float("nan"), "it: nan is not a JSON number"),
        ([float("inf")], "it[0]: inf is not"),
        ({1: 2}, "it: 1 is not a JSON name"),
        ({"a": {None: 1}}, "it.a: None is not a JSON name"),
        (["\ud800"], "it[0]: text with a lone surrogate"),
        ({"\udfff": 1}, "it: text with a lone surrogate"),
        (lambda: 1, "it: function is not"),
        (10**5000, "it: an integer of"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("it") else type(value).__name__,
)
def test_a_part_that_is_not_json_is_named_precisely(value: Any, named: str) -> None:
    with pytest.raises(AuthoringError) as caught:
        json_value(value, "it")
    assert str(caught.value).startswith(named)


def nested(depth: int, wrap: Callable[[Any], Any]) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    return value


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"a": inner}])
def test_nesting_ends_somewhere(wrap: Callable[[Any], Any]) -> None:
    assert json_value(nested(MAX_DEPTH, wrap), "it")
    with pytest.raises(AuthoringError, match="nested deeper"):
        json_value(nested(MAX_DEPTH + 1, wrap), "it")


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(AuthoringError, match="nested deeper"):
        json_value(loop, "it")


@given(JSON_VALUES)
def test_a_copy_is_equal_and_shares_nothing_that_can_change(value: Any) -> None:
    made = copy_json(value)
    assert made == value

    def parts(part: Any) -> set[int]:
        if isinstance(part, dict):
            return {id(part)}.union(*map(parts, part.values()))
        return {id(part)}.union(*map(parts, part)) if isinstance(part, list) else set()

    assert parts(made).isdisjoint(parts(value))
