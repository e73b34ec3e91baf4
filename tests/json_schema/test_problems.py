"""Words for what is wrong with a value: they name the place, are short, and are soon found."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.json_schema.problems import find_problem
from gateway.json_schema.references import References

MEGABYTE = 1 << 20
LONGEST = 600


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        ({"type": "string"}, 1, "1 is not of type 'string'"),
        ({"type": ["string", "null"]}, True, "True is not of type 'string', 'null'"),
        ({"const": "a"}, "b", "'a' was expected"),
        ({"enum": ["a", "b"]}, "c", "'c' is not one of ['a', 'b']"),
        ({"minimum": 3}, 2, "2 is less than the minimum of 3"),
        ({"exclusiveMaximum": 3}, 3, "3 is not less than 3"),
        ({"multipleOf": 3}, 4, "4 is not a multiple of 3"),
        ({"minLength": 3}, "ab", "it has 2 characters; expected at least 3"),
        ({"pattern": "^a"}, "b", "'b' does not match '^a'"),
        ({"maxItems": 1}, [1, 2], "it has 2 items; expected at most 1"),
        ({"minProperties": 1}, {}, "it has 0 properties; expected at least 1"),
        ({"required": ["a"]}, {}, "'a' is a required property"),
        (
            {"properties": {"a": True}, "additionalProperties": False},
            {"b": 1},
            "'b' is not an allowed property",
        ),
        ({"properties": {"a": False}}, {"a": 1}, "a: 1 is not allowed here"),
        ({"properties": {"a": {"items": {"type": "null"}}}}, {"a": [None, 1]}, "a[1]: 1 is not of type 'null'"),
        ({"additionalProperties": {"type": "null"}}, {"a b": 1}, "['a b']: 1 is not of type 'null'"),
        ({"prefixItems": [True, {"type": "null"}]}, [1, 2], "[1]: 2 is not of type 'null'"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}, 1, "1 is not of type 'null'"),
        ({"properties": {"a": {"$ref": "#"}}, "type": "object"}, {"a": {"a": 1}}, "a.a: 1 is not of type 'object'"),
        ({"$ref": "#a", "$defs": {"a": {"$anchor": "a", "type": "null"}}}, 1, "1 is not of type 'null'"),
        ({"$ref": "other", "$defs": {"a": {"$id": "other", "type": "null"}}}, 1, "1 is not of type 'null'"),
        ({"allOf": [{"minimum": 1}, {"minimum": 3}]}, 2, "2 is less than the minimum of 3"),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, 1, "1 matches none of the choices in anyOf"),
        (
            {"anyOf": [{"type": "null"}, {"properties": {"a": {"type": "null"}}}]},
            {"a": 1},
            "a: 1 is not of type 'null'",
        ),
        ({"not": {"type": "string"}}, "a", "the value does not match its schema"),
        ({"uniqueItems": True}, [1, 1], "the value does not match its schema"),
    ],
)
def test_a_problem_has_words_and_a_place(schema: dict[str, Any], value: Any, problem: str) -> None:
    assert find_problem(schema, References(schema), value) == problem


TREE: dict[str, Any] = {
    "type": ["array", "object"],
    "items": {"$ref": "#"},
    "additionalProperties": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "null"}, "x" * MEGABYTE),
        ({"type": "null"}, [0] * (MEGABYTE // 2)),
        ({"type": "null"}, ["x" * 1000] * 1000),
        ({"type": "null"}, {f"name {number}": number for number in range(MEGABYTE // 20)}),
        ({"type": "null"}, {"x" * MEGABYTE: 1}),
        ({"type": "string"}, 10**4000),
        ({"items": {"type": "integer"}}, [0] * (MEGABYTE // 2) + ["x"]),
        ({"items": {"type": "string"}}, [1] * (MEGABYTE // 2)),
        ({"additionalProperties": False}, {"x" * MEGABYTE: 1}),
        ({"additionalProperties": {"type": "null"}}, {"ä \n" * (MEGABYTE // 4): 1}),
        ({"required": ["x" * MEGABYTE]}, {}),
        ({"enum": ["x" * MEGABYTE, *range(2000)]}, [0] * (MEGABYTE // 2)),
        ({"enum": [[0] * 1000] * 2000}, [0] * (MEGABYTE // 2)),
        ({"const": [0] * 1000}, [0] * (MEGABYTE // 2)),
        ({"items": {"enum": [[0] * 100 + [number] for number in range(1000)]}}, [[0] * 101] * 5000),
        ({"type": "string", "pattern": "x" * 1000}, "y" * MEGABYTE),
        (TREE, nested(60)),
        (TREE, nested(5000)),
        ({"anyOf": [{"items": {"type": "null"}}] * 1000}, [1] * 1000),
    ],
)
def test_words_are_short_and_soon_found_however_large_a_value_is(schema: dict[str, Any], value: Any) -> None:
    began = time.process_time()
    problem = find_problem(schema, References(schema), value)
    assert time.process_time() - began < 0.5
    assert 0 < len(problem) <= LONGEST


@given(
    st.dictionaries(
        st.sampled_from(["type", "enum", "required", "anyOf", "$ref", "items", "properties", "minimum", "minLength"]),
        st.integers() | st.text() | st.lists(st.text() | st.integers()) | st.dictionaries(st.text(), st.text()),
    ),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
)
def test_there_are_always_words(schema: dict[str, Any], value: Any) -> None:
    assert 0 < len(find_problem(schema, References(schema), value)) <= LONGEST
