"""Verdicts on generated schemas and values are those of `jsonschema`."""

from __future__ import annotations

import json
from typing import Any, Final

import jsonschema
import pytest
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st
from referencing.jsonschema import EMPTY_REGISTRY

from gateway.errors import AuthoringError
from gateway.json_schema.validation import SchemaValidator

pytestmark = pytest.mark.slow

Strategy = st.SearchStrategy[Any]

NAMES: Final = st.sampled_from(["a", "b", "c", "ab", "x1", ""])
NUMBERS: Final = st.sampled_from([-1, 0, 1, 1.0, 2, 2.5, 3, 6, 10**16, 2**63, 2**64, 2**70, -0.0, 1e30]) | st.integers(
    -4, 12
)
TEXTS: Final = NAMES | st.text(alphabet=st.sampled_from("ab1ä\n 😀"), max_size=4)
PATTERNS: Final = st.sampled_from(["^a", "b$", "^[ab]+$", "a|1", "^.{2,3}$", "^(a|b)*1?$", "[^a]", r"\."])
COUNTS: Final = st.integers(0, 3)
TYPES: Final = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
REFERENCES: Final = st.sampled_from(["#", "#/$defs/a", "#/$defs/b", "#anchor", "other"])

VALUES: Final = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
SMALL_VALUES: Final = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=3,
)

PLAIN: Final[dict[str, Strategy]] = {
    "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
    "enum": st.lists(SMALL_VALUES, min_size=1, max_size=4),
    "const": SMALL_VALUES,
    "multipleOf": st.sampled_from([1, 2, 3, 0.5, 2.5]),
    "maximum": NUMBERS,
    "exclusiveMaximum": NUMBERS,
    "minimum": NUMBERS,
    "exclusiveMinimum": NUMBERS,
    "maxLength": COUNTS,
    "minLength": COUNTS,
    "pattern": PATTERNS,
    "maxItems": COUNTS,
    "minItems": COUNTS,
    "uniqueItems": st.booleans(),
    "maxProperties": COUNTS,
    "minProperties": COUNTS,
    "required": st.lists(NAMES, max_size=2, unique=True),
    "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=2, unique=True), max_size=2),
    "format": st.just("date"),
    "title": st.just("a title"),
}


def _some(keywords: dict[str, Strategy]) -> Strategy:
    names = st.lists(st.sampled_from(sorted(keywords)), max_size=4, unique=True)
    return names.flatmap(lambda chosen: st.fixed_dictionaries({name: keywords[name] for name in chosen}))


def _of(inner: Strategy) -> Strategy:
    """Return schemas that apply others."""
    below = inner | st.builds(lambda reference: {"$ref": reference}, REFERENCES)
    several = st.lists(inner, min_size=1, max_size=3)
    named = st.dictionaries(NAMES, below, max_size=3)
    keywords: dict[str, Strategy] = {
        "allOf": several,
        "anyOf": several,
        "oneOf": several,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
        "dependentSchemas": st.dictionaries(NAMES, inner, max_size=2),
        "prefixItems": st.lists(below, min_size=1, max_size=2),
        "items": below,
        "contains": inner,
        "minContains": COUNTS,
        "maxContains": COUNTS,
        "properties": named,
        "patternProperties": st.dictionaries(PATTERNS, below, max_size=2),
        "additionalProperties": below,
        "propertyNames": inner,
        "unevaluatedItems": below,
        "unevaluatedProperties": below,
        "$ref": REFERENCES,
    }
    return _some({**PLAIN, **keywords})


SUBSCHEMAS: Final = st.recursive(st.booleans() | _some(PLAIN), _of, max_leaves=6)
WHOLE: Final = st.builds(
    lambda top, a, b, anchored, other: {
        **(top if isinstance(top, dict) else {"not": {"not": top}}),
        "$defs": {
            "a": a,
            "b": b,
            "anchored": {"$anchor": "anchor", "type": anchored},
            "other": {"$id": "other", "$defs": {"a": other}, "anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]},
        },
    },
    SUBSCHEMAS,
    SUBSCHEMAS,
    SUBSCHEMAS,
    TYPES,
    _some(PLAIN),
)


def validator(schema: dict[str, Any]) -> SchemaValidator | str:
    """Return the validator of a schema, or why it has none."""
    try:
        return SchemaValidator(schema)
    except AuthoringError as error:
        return str(error)


@settings(max_examples=3 * settings().max_examples, derandomize=True, suppress_health_check=list(HealthCheck))
@example({"multipleOf": 0.5}, [10**16])
@example({"enum": [1]}, [True, 1.0, 1])
@example({"const": 0}, [False, -0.0, 0])
@example({"uniqueItems": True}, [[1, True], [1, 1.0], [[1], [True]], [{"a": 1}, {"a": 1.0}], ["é", "é"]])
@example({"maxLength": 1}, ["😀", "é"])
@example({"properties": {"a": {"$ref": "#"}}, "type": "object"}, [{"a": {"a": {}}}, {"a": {"a": 1}}])
@given(WHOLE, st.lists(VALUES, min_size=3, max_size=6))
def test_generated_verdicts_are_those_of_jsonschema(schema: dict[str, Any], values: list[Any]) -> None:
    ours = validator(schema)
    if isinstance(ours, str):
        assert "without end" in ours
        event("refused: refers to itself without end")
        return
    theirs = jsonschema.Draft202012Validator(schema, registry=EMPTY_REGISTRY)
    for value in [*values, *([value] * (2048 // (len(json.dumps(value)) + 2)) for value in values)]:
        problem = ours.problem(value)
        if problem is not None and problem.startswith("it has more than 100 numbers of 16 digits"):
            event("refused: many large numbers")
            continue
        assert problem is None or "too large" not in problem, json.dumps(value)
        assert (problem is None) == theirs.is_valid(value), (value, problem)
        event("valid" if problem is None else "not valid")
