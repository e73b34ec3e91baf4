"""The cost of schemas: choices that multiply are refused at import, ordinary schemas are not."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.errors import AuthoringError
from gateway.json_schema.costs import Costs
from gateway.json_schema.references import References
from gateway.json_schema.validation import SchemaValidator

pytestmark = pytest.mark.slow

CHEAP: dict[str, Any] = {"type": "integer"}
DEAR: dict[str, Any] = {"enum": [[number] for number in range(100)]}


def refusal(schema: dict[str, Any]) -> str | None:
    try:
        Costs(schema)
    except AuthoringError as error:
        return str(error)
    return None


def doubling(levels: int, keyword: str) -> dict[str, Any]:
    """Return definitions of which each has the one before it twice."""
    definitions: dict[str, Any] = {"d0": CHEAP}
    for level in range(1, levels + 1):
        before = {"$ref": f"#/$defs/d{level - 1}"}
        definitions[f"d{level}"] = {keyword: [before, before]}
    return {"$ref": f"#/$defs/d{levels}", "$defs": definitions}


def unevaluated(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = CHEAP
    for _ in range(levels):
        schema = {"allOf": [schema], "unevaluatedProperties": False}
    return schema


@pytest.mark.parametrize(
    "schema",
    [*(doubling(40, keyword) for keyword in ("allOf", "anyOf", "oneOf")), unevaluated(20)],
    ids=["allOf", "anyOf", "oneOf", "unevaluated"],
)
def test_a_schema_that_multiplies_is_refused_at_import_with_the_way_out(schema: dict[str, Any]) -> None:
    with pytest.raises(AuthoringError, match=r"Define common parts once in \$defs, or give each choice a const"):
        SchemaValidator(schema)


@pytest.mark.parametrize("schema", [doubling(4, "anyOf"), unevaluated(3)])
def test_a_schema_that_multiplies_a_few_times_is_not(schema: dict[str, Any]) -> None:
    assert SchemaValidator(schema).problem(1) is None


def test_a_schema_that_is_nested_without_end_is_an_authors_error() -> None:
    schema: dict[str, Any] = CHEAP
    for _ in range(5000):
        schema = {"not": schema}
    assert refusal(schema) == "the schema is nested too deeply to be checked"


@pytest.mark.parametrize(
    ("reference", "definitions"),
    [
        ("#/$defs/a", {"a": DEAR}),
        ("#/$defs/a~1b~0c", {"a/b~c": DEAR}),
        ("#/%24defs/a%25", {"a%": DEAR}),
        ("#/$defs/a/anyOf/1", {"a": {"anyOf": [CHEAP, DEAR]}}),
        ("#name", {"a": {"$anchor": "name", **DEAR}}),
        ("#name", {"const": {"$dynamicAnchor": "name", **DEAR}}),
        ("other", {"a": {"$id": "other", **DEAR}}),
        ("other.json#/$defs/b", {"a": {"$id": "other.json", "$defs": {"b": DEAR}}}),
        ("other#name", {"a": {"$id": "other", "$defs": {"b": {"$anchor": "name", **DEAR}}}}),
        ("/other", {"a": {"$id": "https://example.com/other", **DEAR}}),
        ("urn:example:a#/$defs/b", {"a": {"$id": "urn:example:a", "$defs": {"b": DEAR}}}),
        (
            "folder/one",
            {"a": {"$id": "folder/one", "$ref": "two"}, "b": {"$id": "folder/two", **DEAR}, "c": {"$id": "two"}},
        ),
        ("one", {"a": {"$id": "one", "$ref": "#/$defs/b", "$defs": {"b": DEAR}}, "b": CHEAP}),
    ],
)
def test_a_reference_costs_what_the_validator_finds_there(reference: str, definitions: dict[str, Any]) -> None:
    schema = {"$id": "https://example.com/root", "$ref": reference, "$defs": definitions}
    assert Costs(schema).most.array >= Costs(DEAR).most.array > 10 * Costs(CHEAP).most.array
    validator = SchemaValidator(schema)
    assert validator.problem([99]) is None
    assert validator.problem(["none"]) is not None


def test_what_only_looks_like_a_name_is_none() -> None:
    schema = {"enum": [{"$id": "other", "type": "string"}], "$defs": {"a": {"$id": "other", **DEAR}}, "$ref": "other"}
    assert Costs(schema).most.array >= Costs(DEAR).most.array


def test_a_dynamic_reference_costs_what_each_schema_of_its_name_does() -> None:
    schema = {
        "$ref": "list",
        "$defs": {
            "strict": {"$dynamicAnchor": "item", **DEAR},
            "list": {
                "$id": "list",
                "items": {"$dynamicRef": "#item"},
                "$defs": {"default": {"$dynamicAnchor": "item", **CHEAP}},
            },
        },
    }
    assert Costs(schema).most.array >= Costs(DEAR).most.array
    validator = SchemaValidator(schema)
    assert validator.problem([[99]]) is None
    assert validator.problem([1]) is not None


def test_a_recursive_reference_of_an_older_dialect_is_followed() -> None:
    dialect = "https://json-schema.org/draft/2019-09/schema"
    schema = {"$schema": dialect, "$recursiveAnchor": True, "properties": {"a": {"$recursiveRef": "#"}}, **DEAR}
    assert Costs(schema).most.array >= Costs(DEAR).most.array


def test_identifiers_of_older_dialects_are_read() -> None:
    draft_4 = "http://json-schema.org/draft-04/schema#"
    assert References({"$schema": draft_4, "definitions": {"a": {"id": "x"}}}).targets({"$ref": "x"}, "$ref") == [
        {"id": "x"}
    ]
    draft_7 = {"definitions": {"a": {"$id": "#x"}}}
    assert References(draft_7).targets({"$ref": "#x"}, "$ref") == [{"$id": "#x"}]


@pytest.mark.parametrize("reference", ["https://json-schema.org/draft/2020-12/schema", "elsewhere", "urn:example:b"])
def test_what_is_outside_has_no_cost_and_is_refused(reference: str) -> None:
    message = refusal({"properties": {"a": {"$ref": reference}}})
    assert message is not None
    assert "never fetched; copy it into $defs" in message


@pytest.mark.parametrize("keyword", ["$ref", "$id"])
def test_an_address_that_is_not_valid_is_an_authors_error(keyword: str) -> None:
    message = refusal({"$id": "base", "properties": {"a": {keyword: "//["}}})
    assert message == "'//[' is not a valid URI; correct the $id or $ref of the schema"


@pytest.mark.parametrize("reference", ["#/$defs/none", "#none", "#/type/x", "#/allOf/7", "#/allOf/x"])
def test_what_is_not_there_is_refused(reference: str) -> None:
    schema = {"type": "object", "allOf": [{"$ref": reference}]}
    assert refusal(schema) == f"the schema refers to {reference}, which is not in it"


def test_choices_in_a_tuple_count_like_those_in_a_list() -> None:
    assert Costs({"anyOf": (DEAR, DEAR)}).most == Costs({"anyOf": [DEAR, DEAR]}).most


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
KEYWORDS = st.sampled_from(
    [
        *("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "extends", "dependentSchemas", "dependencies"),
        *("properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames", "items"),
        *("prefixItems", "contains", "unevaluatedItems", "additionalItems", "$defs", "enum", "const", "multipleOf"),
        *("pattern", "required", "dependentRequired", "uniqueItems", "$id", "$anchor", "$dynamicAnchor", "type", "id"),
    ]
)
NAMES = st.sampled_from(["a", "b", "#a", "u:v", "//", "[", "(a|b){3,9}", "a{99}{99}", "[^]"])
REFERENCES = st.dictionaries(
    st.sampled_from(["$ref", "$dynamicRef", "$recursiveRef"]),
    st.sampled_from(["#", "#/$defs/a", "#/properties/b", "#a", "a", "b#/allOf/0", "", "u:v", "//[", "http://[x"]),
    max_size=1,
)
ANY_SCHEMA = st.recursive(
    st.booleans() | JSON | REFERENCES | NAMES,
    lambda inner: st.dictionaries(
        KEYWORDS, inner | st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_size=5
    ),
    max_leaves=15,
)


@settings(max_examples=4 * settings().max_examples, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(KEYWORDS, ANY_SCHEMA | st.lists(ANY_SCHEMA, max_size=3), max_size=5), REFERENCES)
def test_whatever_a_schema_is_it_has_costs_or_is_an_authors_error_and_soon(
    schema: dict[str, Any], reference: dict[str, str]
) -> None:
    began = time.process_time()
    refusal({**schema, **reference})
    assert time.process_time() - began < 1


def ordinary_schema() -> dict[str, Any]:
    """Return a schema of some 20 kB as people write them."""
    kinds: tuple[dict[str, Any], ...] = (
        {"type": "string", "minLength": 1, "maxLength": 200, "description": "Some text that is shown to people."},
        {"type": "integer", "minimum": 0, "maximum": 1_000_000},
        {"type": "array", "items": {"type": "string", "pattern": "^[a-z]{2,8}$"}, "uniqueItems": True},
        {"enum": ["red", "green", "blue", None]},
        {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        {
            "type": "object",
            "properties": {"x": {"type": "number"}, "tree": {"$ref": "#/$defs/node"}},
            "required": ["x"],
        },
    )
    node = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
        "required": ["name"],
        "additionalProperties": False,
    }
    properties = {f"property_{number}": kinds[number % len(kinds)] for number in range(300)}
    return {
        "type": "object",
        "properties": {**properties, "tree": {"$ref": "#/$defs/node"}},
        "required": ["property_0"],
        "additionalProperties": False,
        "$defs": {"node": node},
    }


def test_an_ordinary_big_schema_takes_ordinary_big_values() -> None:
    schema = ordinary_schema()
    assert len(msgspec.json.encode(schema)) > 20_000
    leaves = [{"name": f"leaf {number}"} for number in range(50)]
    tree = {"name": "top", "children": [{"name": f"branch {number}", "children": leaves} for number in range(100)]}
    kinds: tuple[Any, ...] = ("some text", 17, ["ab", "cd", "ef"], "blue", None, {"x": 0.5, "tree": {"name": "small"}})
    value = {**{f"property_{number}": kinds[number % len(kinds)] for number in range(300)}, "tree": tree}
    assert len(msgspec.json.encode(value)) > 100_000
    assert SchemaValidator(schema).problem(value) is None
    leaves[-1] = {"name": 1}  # type: ignore[dict-item]
    problem = SchemaValidator(schema).problem(value)
    assert problem == "tree.children[0].children[49].name: 1 is not of type 'string'"


def test_a_value_that_costs_too_much_is_refused_and_a_small_one_checked() -> None:
    schema = {"type": "array", "items": {"enum": [{"a": number} for number in range(1000)]}}
    validator = SchemaValidator(schema)
    assert validator.problem([{"a": 999}] * 50) is None
    assert validator.problem([{"a": 999}] * 50_000) == "it is too large to be checked against its schema"


@pytest.mark.parametrize("value", [{"a": 1}, {"a": "secret"}, {"a": 10**400}], ids=["valid", "invalid", "unreadable"])
def test_a_value_is_checked_once_for_both_texts_about_it(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    validator = SchemaValidator({"type": "object", "properties": {"a": {"type": "integer"}}})
    plain, checks = validator.problem(value), []
    compiled = validator._validator

    class Counting:
        def is_valid(self, given: Any) -> bool:
            checks.append(given)
            return compiled.is_valid(given)

    monkeypatch.setattr(validator, "_validator", Counting())
    problems = validator.problems(value)
    assert len(checks) == 1
    assert (problems and problems[0]) == plain
    assert problems is None or "secret" not in problems[1]
