"""Members that are null are left out where they are optional and may not be null, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.json_schema.nulls import without_optional_nulls

json_values = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abn"), inner),
    max_leaves=8,
)


def object_of(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required or []}


TEXT = {"type": "string"}
INNER = object_of(n={"type": "integer"})


@pytest.mark.parametrize(
    "schema",
    [
        TEXT,
        {"type": ["string", "integer"]},
        {"enum": ["a"]},
        {"const": "a"},
        {"anyOf": [TEXT, {"type": "integer"}]},
        {"oneOf": [{"const": 1}, {"enum": [2]}]},
        {"$ref": "#/$defs/text"},
        {"anyOf": [{"$ref": "#/$defs/text"}, {"$ref": "#/$defs/text"}]},
        {"anyOf": [{"$ref": "#/$defs/text"}, TEXT]} | {"type": "string"},
        False,
    ],
    ids=str,
)
def test_an_optional_member_that_may_not_be_null_is_left_out(schema: Any) -> None:
    whole = {**object_of(a=schema), "$defs": {"text": TEXT}}
    assert without_optional_nulls(whole, {"a": None, "b": 1}) == {"b": 1}
    assert without_optional_nulls({**whole, "required": ["a"]}, {"a": None}) == {"a": None}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        True,
        {"type": "null"},
        {"type": ["string", "null"]},
        {"enum": ["a", None]},
        {"const": None},
        {"anyOf": [TEXT, {"type": "null"}]},
        {"$ref": "#/$defs/maybe"},
        {"$ref": "#/elsewhere"},
        {"anyOf": [TEXT, {"$ref": "#/$defs/maybe"}, {}]},
    ],
    ids=str,
)
def test_a_member_that_may_be_null_stays(schema: Any) -> None:
    whole = {**object_of(a=schema), "$defs": {"maybe": {"type": ["string", "null"]}}}
    assert without_optional_nulls(whole, {"a": None}) == {"a": None}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (INNER, {"n": None}),
        ({"anyOf": [INNER, {"type": "null"}]}, {"n": None}),
        ({"$ref": "#/$defs/inner"}, {"n": None}),
        ({"anyOf": [{"$ref": "#/$defs/inner"}, TEXT]}, {"n": None}),
    ],
    ids=str,
)
def test_members_of_inner_objects_are_left_out_too(schema: Any, value: Any) -> None:
    definitions = {"$defs": {"inner": INNER}}
    assert without_optional_nulls({**object_of(a=schema), **definitions}, {"a": value}) == {"a": {}}
    listed = {"type": "array", "items": schema}
    assert without_optional_nulls({**object_of(a=listed), **definitions}, {"a": [value, None, 1]}) == {
        "a": [{}, None, 1]
    }
    mapped = {"type": "object", "additionalProperties": schema}
    assert without_optional_nulls({**object_of(a=mapped), **definitions}, {"a": {"x": value}}) == {"a": {"x": {}}}


def test_what_a_schema_does_not_name_and_what_two_options_name_stays() -> None:
    assert without_optional_nulls(INNER, {"x": None, "n": 1}) == {"x": None, "n": 1}
    mapped = {"type": "object", "additionalProperties": {"type": "integer"}}
    assert without_optional_nulls(object_of(a=mapped), {"a": {"x": None}}) == {"a": {"x": None}}
    union = {"anyOf": [INNER, object_of(n=TEXT)]}
    assert without_optional_nulls(object_of(a=union), {"a": {"n": None}}) == {"a": {"n": None}}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/loop"},
        {"anyOf": [{"$ref": "#/$defs/loop"}]},
        {"type": "array", "items": {"$ref": "#/$defs/loop"}},
    ],
    ids=str,
)
@given(value=json_values)
def test_a_schema_that_leads_to_itself_ends(schema: Any, value: Any) -> None:
    definitions = {"loop": {"anyOf": [{"$ref": "#/$defs/loop"}]}}
    without_optional_nulls({**object_of(a=schema, b=schema), "$defs": definitions}, {"a": value, "b": None})


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), json_values))
def test_nothing_but_null_is_left_out(value: dict[str, Any]) -> None:
    whole = object_of(["b"], a=TEXT, b=TEXT, c={})
    left = without_optional_nulls(whole, value)
    assert left == {name: member for name, member in value.items() if (name, member) != ("a", None)}
