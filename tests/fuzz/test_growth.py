"""The measurement of growing costs finds realistic slow checks, and none in our code."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import jsonschema_rs
import pytest

from gateway.errors import AuthoringError
from gateway.json_schema.validation import SchemaValidator
from gateway.protocol.strict_json import decode
from tests.fuzz import growth
from tests.fuzz.growth import CHECKS, FEWEST, Generator, Unit, check_growth, read_case

pytestmark = pytest.mark.slow

CORPUS = Path(__file__).parent / "corpus" / "costs"
SCHEMA = {"uniqueItems": True}
KEYWORDS = {
    *("prefixItems", "items", "contains", "additionalProperties", "properties", "patternProperties", "propertyNames"),
    *("if", "then", "else", "allOf", "anyOf", "oneOf", "not", "dependentSchemas", "unevaluatedItems"),
    *("unevaluatedProperties", "type", "enum", "const", "multipleOf", "maximum", "exclusiveMaximum", "minimum"),
    *("exclusiveMinimum", "maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "maxContains"),
    *("minContains", "maxProperties", "minProperties", "required", "dependentRequired", "format"),
    *("$ref", "$dynamicRef", "$dynamicAnchor"),
}
"""Those of draft 2020-12 that apply to a value."""


def by(check: Callable[[Any], Callable[[Any], object]]) -> dict[str, Any]:
    """Return the single check that `check` makes from a schema."""

    def make(schema: Any) -> Any:
        verdict = check(schema)
        return lambda text: partial(verdict, decode(text))

    return {"it": make}


def engine_alone(schema: Any) -> Callable[[Any], object]:
    return jsonschema_rs.validator_for(schema).is_valid


class Unbounded(SchemaValidator):
    """Our check without the limit that rejects costly values."""

    def _too_costly(self, value: Any) -> str | None:
        return None


def ours_without_its_limit(schema: Any) -> Callable[[Any], object]:
    return Unbounded(schema).problem


def package_in_python(schema: Any) -> Callable[[Any], object]:
    return jsonschema.Draft202012Validator(schema).is_valid


QUADRATIC = {
    "big integers, by the engine alone": ("big-integers", engine_alone),
    "big integers, by ours without its limit": ("big-integers", ours_without_its_limit),
    "objects, by the package in Python": ("objects", package_in_python),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("file", "check"), QUADRATIC.values(), ids=QUADRATIC)
def test_a_check_that_compares_each_item_with_each_is_found_within_a_minute(
    file: str, check: Callable[[Any], Callable[[Any], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "CONFIRMATIONS", 3)  # what is found here is known to be slow
    schema, unit = read_case((CORPUS / file).read_bytes())

    def fuzz() -> None:
        while True:  # a busy machine may hide it once
            check_growth(schema, unit, by(check))

    with pytest.raises(AssertionError, match=r'it costs .* ms for \d+ and .* times as much; .*"uniqueItems":true'):
        fuzz()


@pytest.mark.parametrize("file", sorted({file for file, _ in QUADRATIC.values()}))
def test_our_own_check_of_the_same_is_not(file: str) -> None:
    schema, unit = read_case((CORPUS / file).read_bytes())
    assert schema == SCHEMA
    check_growth(schema, unit, CHECKS)


def work(rounds: int) -> None:
    for _ in range(rounds):
        hash("a")


def test_a_value_that_is_refused_for_another_reason_than_half_of_it_is_not_compared() -> None:
    def dear_if_long(_: Any) -> Callable[[Any], object]:
        def check(items: list[int]) -> str:
            is_long = len(items) > 4 * FEWEST
            work(4_000_000 if is_long else 400_000)
            return "long" if is_long else "short"

        return check

    check_growth(SCHEMA, Unit("[", "1#", ",", "]"), by(dear_if_long))


def test_each_keyword_is_generated() -> None:
    made: set[str] = set()
    for letter in map(chr, range(33, 127)):
        made |= set(Generator(letter.encode()).schema())
    assert made == KEYWORDS


@pytest.mark.parametrize("letter", [bytes([number]) for number in range(256)])
def test_any_letters_make_a_schema_and_a_value(letter: bytes) -> None:
    schema, unit = read_case(letter * 40 + b"\n" + letter * 4)
    decode(unit.times(FEWEST))
    try:
        SchemaValidator(schema)
    except AuthoringError as error:
        assert "not a valid JSON Schema" not in str(error)
