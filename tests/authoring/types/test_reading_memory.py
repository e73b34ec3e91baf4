"""The estimate of the memory that objects take is not below what they take."""

from __future__ import annotations

import dataclasses
import tracemalloc
from typing import Any, TypedDict

import pytest
from pydantic import BaseModel, Json

from gateway.authoring.arguments import Arguments


class Row(BaseModel):
    name: str = ""
    count: int = 0


class Rows(BaseModel):
    rows: list[Row] = []


class Many(BaseModel):
    a: int = 0
    b: int = 0
    c: int = 0
    d: int = 0
    e: int = 0
    f: int = 0
    g: int = 0
    h: int = 0
    i: int = 0
    j: int = 0
    k: int = 0
    l: int = 0  # noqa: E741 - one of many


class Copied(BaseModel):
    numbers: list[int] = [1, 2, 3]
    names: dict[str, int] = {"a": 1, "b": 2}
    row: Row = Row()


class Tree(BaseModel):
    children: list[Tree] = []


@dataclasses.dataclass
class Point:
    x: int = 0
    y: int = 0


class Named(TypedDict, total=False):
    name: str


def taking(annotation: Any) -> Arguments:
    def function(value: Any) -> None: ...

    function.__annotations__["value"] = annotation
    return Arguments(function)


ROWS: list[dict[str, Any]] = [{} for _ in range(3000)]
KINDS: dict[str, tuple[Any, Any]] = {
    "models": (list[Row], ROWS),
    "models with values": (list[Row], [{"name": "a", "count": 7} for _ in ROWS]),
    "models of many fields": (list[Many], ROWS),
    "copied defaults": (list[Copied], ROWS),
    "models in a dict": (dict[str, Row], {str(number): {} for number in range(3000)}),
    "models in models": (Rows, {"rows": ROWS}),
    "a tree": (Tree, {"children": [{"children": [{}]} for _ in ROWS]}),
    "dataclasses": (list[Point], ROWS),
    "typed dicts": (list[Named], ROWS),
    "a choice of models": (list[Row | Many], ROWS),
    "a text of JSON": (Json[list[Row]], f"[{','.join(['{}'] * 3000)}]"),
    "a text in a text": (Json[Json[list[Row]]], '"[' + ",".join(["\\u007b}"] * 3000) + ']"'),
}


@pytest.mark.parametrize("kind", KINDS)
def test_objects_take_no_more_memory_than_is_counted(kind: str) -> None:
    annotation, value = KINDS[kind]
    arguments = taking(annotation)
    arguments.read({"value": value})  # what pydantic keeps for itself
    tracemalloc.start()
    try:
        read = arguments.read({"value": value})
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert read
    assert taken <= arguments.memory_of({"value": value}) < 20 * taken


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(list[Row], [{}] * 50), (list[dict[str, int]], [{}] * 3000), (list[int], [1] * 3000), (str, "{" * 3000)],
)
def test_few_objects_and_plain_values_count_as_their_body(annotation: Any, value: Any) -> None:
    assert taking(annotation).memory_of({"value": value}) == 0
