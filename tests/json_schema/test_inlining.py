"""References of schemas, written out for clients that cannot follow them."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, create_model

from gateway import tool
from gateway.authoring.types.model_schemas import model_schema
from gateway.json_schema.inlining import inlined
from gateway.json_schema.validation import SchemaValidator


class Leaf(BaseModel):
    """A leaf."""

    size: int = 1


class Cat(BaseModel):
    kind: Literal["cat"]
    leaf: Leaf


class Dog(BaseModel):
    kind: Literal["dog"]


class Node(BaseModel):
    leaf: Leaf
    inner: list[Node] = []


class Holder(BaseModel):
    plain: Leaf
    noted: Annotated[Leaf, Field(title="My leaf", description="Mine.")] = Leaf(size=2)
    pets: list[Annotated[Cat | Dog, Field(discriminator="kind")]]


LEAF = {"type": "object", "description": "A leaf.", "properties": {"size": {"type": "integer", "default": 1}}}


def test_a_schema_without_recursion_has_no_references() -> None:
    schema = inlined(model_schema(Holder))
    assert "$defs" not in schema
    assert "$ref" not in json.dumps(schema)
    assert "#/$defs" not in json.dumps(schema)
    assert schema["properties"]["plain"] == LEAF
    pets = schema["properties"]["pets"]["items"]
    assert pets["discriminator"] == {"propertyName": "kind"}
    assert pets["oneOf"][0]["properties"]["leaf"] == LEAF


def test_what_stands_beside_a_reference_replaces_the_words_of_the_definition() -> None:
    noted = inlined(model_schema(Holder))["properties"]["noted"]
    assert noted == {**LEAF, "title": "My leaf", "description": "Mine.", "default": {"size": 2}}


def test_what_stands_beside_a_reference_demands_more_than_the_definition() -> None:
    schema = {"$ref": "#/$defs/A", "minimum": 3, "title": "T", "$defs": {"A": {"minimum": 5, "title": "A"}}}
    assert inlined(schema) == {"allOf": [{"minimum": 5, "title": "A"}], "minimum": 3, "title": "T"}
    schema = {"$ref": "#/$defs/A", "maximum": 9, "$defs": {"A": {"minimum": 5}}}
    assert inlined(schema) == {"minimum": 5, "maximum": 9}


def test_only_what_refers_to_itself_stays_a_definition() -> None:
    schema = inlined({"properties": {"node": {"$ref": "#/$defs/Node"}}, "$defs": model_schema(Node)["$defs"]})
    assert schema["properties"]["node"] == {"$ref": "#/$defs/Node"}
    assert list(schema["$defs"]) == ["Node"]
    assert schema["$defs"]["Node"]["properties"]["leaf"] == LEAF


def test_a_schema_that_would_become_too_large_keeps_its_references() -> None:
    model: type[BaseModel] = Leaf
    for level in range(30):
        model = create_model(f"Level{level}", left=(model, ...), right=(model, ...))
    schema = model_schema(model)
    assert inlined(schema) is schema
    few = create_model("Few", left=(Leaf, ...), right=(Leaf, ...))
    assert "$defs" not in inlined(model_schema(few))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"$ref": "#", "$defs": {"A": {}}},
        {"$ref": "https://example.com/a", "$defs": {"A": {}}},
        {"$ref": "#/$defs/A/properties/b", "$defs": {"A": {}}},
    ],
    ids=str,
)
def test_other_references_stay(schema: dict[str, Any]) -> None:
    assert inlined(schema) is schema


def test_values_and_property_names_are_not_taken_for_references() -> None:
    data = {"$ref": "#/$defs/A"}
    schema = {
        "properties": {"$ref": {"$ref": "#/$defs/A"}, "default": {"$ref": "#/$defs/A"}, "b": {"default": data}},
        "$defs": {"A": {"type": "integer"}},
    }
    assert inlined(schema) == {
        "properties": {"$ref": {"type": "integer"}, "default": {"type": "integer"}, "b": {"default": data}}
    }


def test_arguments_are_listed_without_references() -> None:
    @tool
    async def grow(leaf: Leaf, node: Node | None = None) -> None: ...

    assert grow.input_schema["properties"]["leaf"] == LEAF
    assert list(grow.input_schema["$defs"]) == ["Node"]


parts = st.recursive(
    st.sampled_from(
        [{"type": "integer"}, {"type": "string", "maxLength": 1}, {"const": 1}, {"$ref": "#/$defs/A"}]
        + [{"$ref": f"#/$defs/{name}", "title": "T"} for name in "ABC"]
        + [{"$ref": f"#/$defs/{name}", "type": "integer"} for name in "AB"]
    ),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=2).map(lambda some: {"anyOf": some})
        | inner.map(lambda one: {"type": "array", "items": one})
        | inner.map(lambda one: {"type": "object", "properties": {"a": one}, "required": ["a"]})
    ),
    max_leaves=4,
)
values = st.recursive(
    st.sampled_from([0, 1, "", "ab", None]),
    lambda inner: st.lists(inner, max_size=2) | st.fixed_dictionaries({}, optional={"a": inner}),
    max_leaves=4,
)


@given(parts, st.fixed_dictionaries(dict.fromkeys("ABC", parts)), st.lists(values, min_size=1, max_size=8))
def test_a_schema_means_the_same_without_its_references(root: Any, definitions: Any, some: list[Any]) -> None:
    schema = {"properties": {"a": root}, "$defs": definitions}
    try:
        before = jsonschema_rs.validator_for(schema)
        verdicts = [before.is_valid({"a": value}) for value in some]
    except (ValueError, RecursionError):  # a reference that leads only to itself
        return
    after = jsonschema_rs.validator_for(inlined(schema))
    assert [after.is_valid({"a": value}) for value in some] == verdicts


def test_our_own_checks_accept_what_is_listed() -> None:
    validator = SchemaValidator(inlined(model_schema(Holder)))
    assert validator.problem({"plain": {}, "pets": [{"kind": "dog"}]}) is None
    assert validator.problem({"plain": {"size": "x"}, "pets": []}) is not None
