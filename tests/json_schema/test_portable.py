"""Only schemas and patterns count as portable that the validators of all clients can read."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from typing import Any

import jsonschema
import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import AuthoringError
from gateway.json_schema.patterns import why_not_portable
from gateway.json_schema.portable import portable
from tests.cpu_time import least_seconds
from tests.json_schema.portable_schemas import CLEAR, CLEAR_PATTERNS, UNCLEAR, UNCLEAR_PATTERNS, taking

PIECES = st.sampled_from(
    [*"ab0é^$.|*+?()[]{}\\-&,:=!<>", "(?:", "(?=", "(?!", r"\d", r"\w", r"\-", "[^", "a-z", "{2}", "{1,3}", "{0,}"]
)


@pytest.mark.parametrize("pattern", CLEAR_PATTERNS)
def test_a_pattern_that_all_languages_read_is_portable(pattern: str) -> None:
    assert why_not_portable(pattern) is None
    assert portable(taking(x={"pattern": pattern})) == taking(x={"pattern": pattern})


@pytest.mark.parametrize("pattern", UNCLEAR_PATTERNS)
def test_a_pattern_that_some_language_refuses_is_not_portable(pattern: str) -> None:
    assert why_not_portable(pattern)
    with pytest.raises(AuthoringError, match="some clients cannot read the pattern"):
        portable(taking(x={"pattern": pattern}))


def test_the_reason_quotes_the_part_of_a_pattern_that_languages_read_differently() -> None:
    assert why_not_portable(r"^[a-z]+\Z") == r"JavaScript, Python and Rust do not agree on '\\Z'"


@given(st.lists(PIECES, max_size=12).map("".join))
def test_python_and_rust_read_every_portable_pattern(pattern: str) -> None:
    if why_not_portable(pattern) is None:
        re.compile(pattern)
        jsonschema_rs.validator_for({"pattern": pattern})


@pytest.mark.parametrize("name", CLEAR)
def test_a_schema_that_all_clients_read_is_portable(name: str) -> None:
    assert portable(CLEAR[name]) == CLEAR[name]


@pytest.mark.parametrize("name", CLEAR)
def test_python_and_rust_apply_a_portable_schema(name: str) -> None:
    schema = CLEAR[name]
    values: list[Any] = [{"x": {}}, {"x": "a"}, {"b": {"a": {}}}]
    for value in values:  # whatever they find, they can read it
        jsonschema.Draft202012Validator(schema).is_valid(value)
        jsonschema_rs.validator_for(schema).is_valid(value)


@pytest.mark.parametrize("name", UNCLEAR)
def test_a_schema_that_some_client_refuses_is_not_portable(name: str) -> None:
    with pytest.raises(AuthoringError):
        portable(UNCLEAR[name])


@pytest.mark.parametrize("name", ["$id", "id"])
def test_a_portable_schema_has_no_name_of_its_own(name: str) -> None:
    assert portable({name: "https://a.example/s", **taking(x={"$ref": "#"})}) == taking(x={"$ref": "#"})


def many(of: Callable[[int], Any], count: int) -> dict[str, Any]:
    return {f"a{number}": of(number) for number in range(count)}


LARGE: dict[str, Callable[[int], dict[str, Any]]] = {
    "parts": lambda count: taking(**many(lambda _: {}, count)),
    "names": lambda count: {"patternProperties": many(lambda _: {}, count)},
    "references": lambda count: {**taking(**many(lambda _: {"$ref": "#/$defs/b"}, count)), "$defs": {"b": {}}},
    "long references": lambda count: taking(
        **{"a" * 40 * count: {}}, **many(lambda _: {"$ref": "#/properties/" + "a" * 40 * count}, 40)
    ),
    "a chain": lambda count: {
        "$defs": {**many(lambda number: {"$ref": f"#/$defs/a{number + 1}"}, count), f"a{count}": {}}
    },
    "a list": lambda count: {"anyOf": [{"$ref": f"#/anyOf/{number + 1}"} for number in range(count)] + [{}]},
    "values": lambda count: {"enum": [[number] for number in range(count)]},
    "a long pattern": lambda count: taking(x={"pattern": "(" * 30 * count}),
}


@pytest.mark.parametrize("kind", LARGE)
def test_a_schema_is_judged_in_time_that_is_linear_in_its_size(kind: str) -> None:
    def judge(count: int) -> None:
        schema = json.loads(json.dumps(LARGE[kind](count)))
        with contextlib.suppress(AuthoringError):
            portable(schema)

    assert least_seconds(judge, 2000) < 0.5
