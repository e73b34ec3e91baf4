"""Values inside of texts that are read as JSON count like those of a body."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Annotated, Any, TypedDict

import pytest
from pydantic import BaseModel, BeforeValidator, Field, Json, Secret

from gateway.authoring.arguments import Arguments, InvalidArguments
from gateway.protocol.strict_json import MAX_VALUES
from tests.cpu_time import least_seconds


class Empty(BaseModel):
    number: int = 1


class Nested(BaseModel):
    inner: Json[list[Empty]] = []


@dataclass
class Plain:
    inner: Json[list[Empty]]


class Typed(TypedDict):
    inner: Json[list[Empty]]


class Tree(BaseModel):
    parts: list[Tree | Leaf] = []


class Leaf(BaseModel):
    parts: list[Tree | int]


def many(item: str, count: int) -> str:
    return f"[{','.join([item] * count)}]"


def arguments(annotation: Any) -> Arguments:
    def function(given: Any) -> None: ...

    function.__annotations__["given"] = annotation
    return Arguments(function)


OBJECTS = many("{}", 300_000)
ANNOTATIONS: Mapping[str, tuple[Any, Any]] = {
    "a list of models": (Json[list[Empty]], OBJECTS),
    "anything": (dict[str, Json[Any]], {"a": many("[]", 300_000)}),
    "an optional text": (Json[list[Empty]] | None, OBJECTS),
    "a union": (int | Json[dict[str, int]] | Json[list[Empty]], OBJECTS),
    "in a list": (list[Json[list[Empty]]], [many("{}", 10_000)] * 10),
    "short texts": (list[Json[Empty]], ["{}"] * 140_000),
    "in a dict": (dict[str, Json[list[Empty]]], {"a": OBJECTS}),
    "a key": (dict[Json[tuple[int, ...]], int], {many("1", 500_000): 1}),
    "in a model": (Nested, {"inner": OBJECTS}),
    "in a dataclass": (Plain, {"inner": OBJECTS}),
    "in a typed dict": (Typed, {"inner": OBJECTS}),
    "a text in a text": (Json[Json[list[Empty]]], json.dumps(OBJECTS)),
    "a text in a text in a text": (Json[list[Json[dict[str, Json[Any]]]]], json.dumps([json.dumps({"a": OBJECTS})])),
    "an escaped text in a text": (Json[Json[list[Empty]]], json.dumps(OBJECTS).replace("{", "\\u007b")),
    "a text in a key of a text": (Json[dict[Json[tuple[int, ...]], int]], json.dumps({many("1", 500_000): 1})),
    "behind white space": (Json[list[Empty]], f" \n{OBJECTS}"),
    "a secret": (Secret[Json[list[Empty]]], OBJECTS),
    "a validator of the author's": (Annotated[Json[list[Empty]], BeforeValidator(str)], OBJECTS),
    "a constraint": (Annotated[Json[list[Empty]], Field(max_length=10**6)], OBJECTS),
}


@pytest.mark.parametrize("name", ANNOTATIONS)
def test_too_many_values_in_texts_are_refused_before_they_are_read(name: str) -> None:
    annotation, given = ANNOTATIONS[name]
    reader = arguments(annotation)

    def refuse(value: Any) -> None:
        with pytest.raises(InvalidArguments, match="given: it has too many values, with those in its texts of JSON"):
            reader.read({"given": value})

    assert least_seconds(refuse, given) < 0.1


def test_texts_of_all_arguments_count_together() -> None:
    def function(one: Json[list[Empty]], other: Json[list[Empty]]) -> None: ...

    text = many("{}", MAX_VALUES // 10)
    with pytest.raises(InvalidArguments, match="other: it has too many values"):
        Arguments(function).read({"one": text, "other": text})


def test_as_many_values_as_a_body_may_have_are_read() -> None:
    rows = json.dumps([[1.5] * 10] * 9_900)
    assert len(arguments(Json[list[list[float]]]).read({"given": rows})["given"]) == 9_900
    texts = [json.dumps({"prose": "well, [this] {is}, " * 5_000, "number": 1})] * 10
    assert len(arguments(list[Json[dict[str, Any]]]).read({"given": texts})["given"]) == 10


def test_what_is_dear_in_a_text_in_a_text_is_refused() -> None:
    text = json.dumps(many('"192.0.2.0/24"', 20_000))
    with pytest.raises(InvalidArguments, match="given: it has more values than can be read in one call"):
        arguments(Json[Json[list[IPv4Network]]]).read({"given": text})


def test_texts_do_not_hide_how_deep_recursive_choices_nest() -> None:
    deep = '{"parts":[' * 40 + '{"parts":["x"]}' + "]}" * 40
    with pytest.raises(InvalidArguments, match="nested too deeply for this recursive schema"):
        arguments(Json[Tree]).read({"given": deep})
    assert arguments(Json[Tree]).read({"given": '{"parts":[{"parts":[1]}]}'})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a":{},"a":{}}', "a text of JSON repeats a name in one object"),
        ("[NaN]", "a text of JSON is not valid JSON"),
        ("[" * 150 + "]" * 150, "a text of JSON nests deeper than 100 levels"),
        (f"[{'1' * 400}]", "a text of JSON has a number with more than 308 digits"),
    ],
    ids=["a name twice", "not a number", "too deep", "a long number"],
)
def test_a_text_that_two_parsers_could_read_differently_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidArguments, match=f"^given: {problem}"):
        arguments(list[Json[Any]]).read({"given": [text]})


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "1e400", "-1.5E+400", " NaN ", "9" * 309])
@pytest.mark.parametrize(
    ("annotation", "of_text"),
    [
        (Json[float], str),
        (list[Json[Any]], lambda text: [text]),
        (dict[Json[float], int], lambda text: {text: 1}),
        (Json[Json[float]], json.dumps),
        (Json[list[Json[float]]], lambda text: json.dumps([text])),
        (Json[dict[Json[float], int]], lambda text: json.dumps({text: 1})),
    ],
    ids=["a text", "in a list", "a key", "in a text", "in a list in a text", "a key in a text"],
)
def test_a_number_out_of_range_is_refused_in_a_text_too(annotation: Any, of_text: Any, text: str) -> None:
    with pytest.raises(InvalidArguments, match=r"^given: a text of JSON (is not valid JSON|has a number with more)"):
        arguments(annotation).read({"given": of_text(text)})


@pytest.mark.parametrize("text", ["1e5", "-12.5", "0.0e-400", "9" * 308])
def test_a_number_in_range_is_read_from_a_text(text: str) -> None:
    assert arguments(Json[float]).read({"given": text}) == {"given": float(text)}


@pytest.mark.parametrize(
    "text", ["{name} is a placeholder", "[", '"', " ", "", "no", "\ud800[", "NaNny", "Inf", "12e4ab"]
)
def test_a_text_beside_them_that_is_not_json_is_only_a_text(text: str) -> None:
    assert arguments(Json[list[int]] | str).read({"given": text})["given"] == text


@pytest.mark.parametrize(
    "given", [["[Infinity"] * 27_000, {f"[{number}": 1 for number in range(27_000)}, ['{"a":1,' * 100_000]]
)
def test_texts_that_begin_like_json_and_end_early_are_refused_if_they_are_many(given: Any) -> None:
    annotation = dict[str, Json[Any]] if isinstance(given, dict) else list[Json[Any]]
    with pytest.raises(InvalidArguments, match="given: it has too many values"):
        arguments(annotation).read({"given": given})


def test_few_levels_of_texts_in_texts_are_read() -> None:
    text: Any = {"a": 1}
    for level in range(1, 9):
        text = json.dumps([text] if level > 1 else text)
        if level <= 4:
            assert arguments(dict[str, Json[Any]]).read({"given": {"a": text}})
    with pytest.raises(InvalidArguments, match="given: it has too many values"):
        arguments(dict[str, Json[Any]]).read({"given": {"a": text}})


def test_many_problems_in_a_text_are_not_listed() -> None:
    reader, text = arguments(Json[list[int]]), many('"x"', 100_000)

    def refuse(value: Any) -> None:
        with pytest.raises(InvalidArguments, match=r"^given\.0: Input should be a valid integer.*integer$"):
            reader.read({"given": value})

    assert least_seconds(refuse, text) < 0.1
    with pytest.raises(InvalidArguments, match=r"given\.0: .*; given\.1: .*"):
        reader.read({"given": many('"x"', 2)})
