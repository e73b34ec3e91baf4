"""Reading arguments of annotated types takes steps in proportion to their size."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, JsonValue, ValidationError

from gateway.authoring.arguments import Arguments, InvalidArguments
from gateway.authoring.types.model_validators import SMALL, NestingLimit, stopping_validator

DEEP = 40
"""Reading this many levels with two choices each would take years."""


class And(BaseModel):
    op: Literal["and"]
    args: list[And | Or | Leaf]


class Or(BaseModel):
    op: Literal["or"]
    args: list[And | Or | Leaf]


class Leaf(BaseModel):
    x: int


class TaggedAnd(BaseModel):
    op: Literal["and"]
    args: list[Annotated[TaggedAnd | TaggedOr, Field(discriminator="op")]]


class TaggedOr(BaseModel):
    op: Literal["or"]
    args: list[Annotated[TaggedAnd | TaggedOr, Field(discriminator="op")]]


class Chain(BaseModel):
    next: Chain | int


class Lists(BaseModel):
    numbers: list[int]
    names: dict[str, int] = {}


def filter_by(where: And | Or | Leaf) -> None: ...


def filter_by_tags(where: TaggedAnd | TaggedOr) -> None: ...


def follow(chain: Chain) -> None: ...


def keep(value: JsonValue) -> None: ...


def count(lists: Lists, numbers: list[int]) -> None: ...


def nested(levels: int, leaf: Any) -> Any:
    for _ in range(levels):
        leaf = {"op": "or", "args": [leaf]}
    return leaf


@pytest.mark.parametrize("leaf", [{"x": 1}, {"x": "wrong"}])
def test_choices_that_contain_one_another_are_not_tried_without_end(leaf: Any) -> None:
    with pytest.raises(InvalidArguments, match="nested too deeply"):
        Arguments(filter_by).read({"where": nested(DEEP, leaf)})


def test_choices_that_contain_one_another_nest_as_deep_as_people_write() -> None:
    read = Arguments(filter_by).read({"where": nested(5, {"x": 1})})["where"]
    assert read == Or.model_validate(nested(5, {"x": 1}))


def test_many_shallow_choices_are_read() -> None:
    wide = {"op": "or", "args": [nested(1, {"x": 1})] * 5000}
    assert len(Arguments(filter_by).read({"where": wide})["where"].args) == 5000


def test_tagged_choices_nest_as_deep_as_a_body_may() -> None:
    deep = nested(DEEP, {"op": "and", "args": []})
    assert Arguments(filter_by_tags).read({"where": deep})["where"].op == "or"


def test_one_model_in_itself_nests_as_deep_as_a_body_may() -> None:
    deep: Any = 1
    for _ in range(DEEP):
        deep = {"next": deep}
    assert Arguments(follow).read({"chain": deep})["chain"].next


def test_any_json_nests_as_deep_as_a_body_may() -> None:
    deep: Any = 1
    for _ in range(DEEP):
        deep = [{"a": deep}]
    assert Arguments(keep).read({"value": deep}) == {"value": deep}


def test_a_long_list_is_left_at_its_first_wrong_item() -> None:
    with pytest.raises(ValidationError) as caught:
        stopping_validator(Lists).validate_python({"numbers": ["x"] * 1000, "names": dict.fromkeys("abc", "x")})
    assert [error["loc"] for error in caught.value.errors()] == [("numbers", 0), ("names", "a")]


def test_so_is_one_in_a_model_inside() -> None:
    too_many = ["x"] * (SMALL + 1)
    with pytest.raises(InvalidArguments) as caught:
        Arguments(count).read({"lists": {"numbers": too_many}, "numbers": too_many})
    assert len(str(caught.value).split("; ")) == 2


def test_of_a_short_list_every_wrong_item_is_named() -> None:
    with pytest.raises(InvalidArguments) as caught:
        Arguments(count).read({"lists": {"numbers": ["x", "y"]}, "numbers": [1, "z"]})
    assert [line.split(":")[0] for line in str(caught.value).split("; ")] == [
        "lists.numbers.0",
        "lists.numbers.1",
        "numbers.1",
    ]


@pytest.mark.parametrize("kind", [int, list[int], str | None])
def test_without_choices_nothing_is_counted(kind: Any) -> None:
    def function(value: Any) -> None: ...

    function.__annotations__ = {"value": kind}
    assert not NestingLimit(Arguments(function).schema).exceeded({"value": nested(DEEP, 1)})
