"""Arguments that are dear to read are refused when they are too many, and nothing large is read twice."""

from __future__ import annotations

import enum
import json
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from ipaddress import IPv4Network
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from pydantic import AfterValidator, AnyUrl, BaseModel, BeforeValidator, Field, IPvAnyInterface, Json, create_model

from gateway.authoring.arguments import Arguments, InvalidArguments
from tests.cpu_time import least_seconds

FEW = 3000
"""An honest caller sends no more of the dear types."""

MANY = 50_000
"""Reading so many of the dear types takes too long."""


MOST_IN_A_BODY = 29_990
"""So many objects fit into a body."""


class Colour(enum.Enum):
    RED = "red"


class Fruit(enum.Enum):
    APPLE = "apple"


class Cat(BaseModel):
    lives: int
    name: str = ""


class Dog(BaseModel):
    lives: str


class Listing(BaseModel):
    items: list[int] = []


class Owner(BaseModel):
    cat: Cat = Cat(lives=9)


class Deep(BaseModel):
    rows: tuple[dict[str, list[int]], ...] = ({"a": [1, 2]},)


class Checked(BaseModel, validate_default=True):
    numbers: tuple[int, ...] = (1,) * 100


@dataclass
class Held:
    cats: tuple[Cat, ...] = (Cat(lives=9),)


class Named(NamedTuple):
    items: list[int] = []  # noqa: RUF012 - that is the case
    names: dict[str, int] = {}  # noqa: RUF012 - as above


class Manufactured(BaseModel):
    items: list[int] = Field(default_factory=list)


class Tree(BaseModel):
    parts: list[Tree | Cat | int] = []


_FIELDS: Any = {f"field_{number}": (int, ...) for number in range(50)}
_LISTS: Any = {f"field_{number}": (list[int], []) for number in range(20)}
Lists: Any = create_model("Lists", **_LISTS)
Wide: Any = create_model("Wide", **_FIELDS)


DEAR: dict[str, tuple[Any, Any]] = {
    "enums in a union": (list[Colour | Fruit | int], 1),
    "networks": (list[IPv4Network], "192.0.2.0/24"),
    "networks by name": (dict[str, IPv4Network], "192.0.2.0/24"),
    "any interface": (list[IPvAnyInterface], "::1"),
    "models in a union": (list[Cat | Dog], {"lives": "many"}),
    "models in an optional union": (list[Cat | Dog | None] | None, {"lives": "many"}),
    "models that refer to themselves": (list[Tree], {"parts": [1]}),
    "fields in a union": (list[Wide | dict[str, int]], {}),
    "fractions": (list[Fraction], "1/2"),
    "URLs": (list[AnyUrl], "a:b"),
    "paths": (list[Path], "a"),
}


COPIED: dict[str, tuple[Any, Any]] = {
    "lists": (list[Listing], {}),
    "models": (list[Owner], {}),
    "models in a tuple of a dataclass": (list[Held], {}),
    "dicts in a tuple": (list[Deep], {}),
    "defaults of a tuple": (list[Named], []),
    "many lists": (list[Lists], {}),
    "models by name": (dict[str, Owner], {}),
    "a choice": (list[Listing | Owner | int], {}),
    "a text": (Json[list[Owner]], {}),
    "defaults that are checked": (list[Checked], {}),
}
"""Types whose defaults are copied or checked for each value."""


def arguments(annotation: Any, default: Any = 1) -> Arguments:
    def function(given: Any, other: int = default) -> None: ...

    function.__annotations__["given"] = annotation
    return Arguments(function)


def many(annotation: Any, item: Any, count: int) -> Any:
    if typing.get_origin(annotation) is dict:
        return {str(number): item for number in range(count)}
    return [item] * count


@pytest.mark.parametrize("name", DEAR)
def test_what_is_dear_to_read_is_refused_before_it_is_read(name: str) -> None:
    annotation, item = DEAR[name]
    reader, given = arguments(annotation), many(annotation, item, MANY)

    def refuse(value: Any) -> None:
        with pytest.raises(InvalidArguments, match="given: it has more values than can be read in one call"):
            reader.read({"given": value})

    assert least_seconds(refuse, given) < 0.25


@pytest.mark.parametrize("name", DEAR)
def test_what_honest_callers_send_of_it_is_read(name: str) -> None:
    annotation, item = DEAR[name]
    read = arguments(annotation).read({"given": many(annotation, item, FEW)})
    assert len(read["given"]) == FEW


@pytest.mark.parametrize("name", COPIED)
def test_what_lacks_many_defaults_is_refused_before_they_are_copied(name: str) -> None:
    annotation, item = COPIED[name]
    reader, given = arguments(annotation), many(annotation, item, MOST_IN_A_BODY)

    def refuse(value: Any) -> None:
        with pytest.raises(InvalidArguments, match="given: it has more values than can be read in one call"):
            reader.read({"given": value})

    assert least_seconds(refuse, json.dumps(given) if name == "a text" else given) < 0.1


@pytest.mark.parametrize("name", COPIED)
def test_honest_callers_may_leave_defaults_out(name: str) -> None:
    annotation, item = COPIED[name]
    given = many(annotation, item, FEW // 10)
    assert arguments(annotation).read({"given": json.dumps(given) if name == "a text" else given})


@pytest.mark.parametrize("kind", [Cat, Manufactured, dict[str, int]])
def test_defaults_that_are_not_copied_limit_nothing(kind: Any) -> None:
    read = arguments(list[kind]).read({"given": [{"lives": 1} if kind is Cat else {}] * MOST_IN_A_BODY})
    assert len(read["given"]) == MOST_IN_A_BODY


@pytest.mark.parametrize(("kind", "value", "count"), [(str, "x", 5000), (int | None, None, 1000)])
def test_thousands_of_rows_of_many_plain_columns_are_read(kind: Any, value: Any, count: int) -> None:
    columns: Any = {f"column_{number}": (kind, ...) for number in range(20)}
    reader = arguments(list[create_model("Row", **columns)])  # type: ignore[misc]
    assert len(reader.read({"given": [dict.fromkeys(columns, value)] * count})["given"]) == count


@pytest.mark.parametrize("name", DEAR)
def test_the_refusal_says_how_many_values_fit_in_one_call(name: str) -> None:
    annotation, item = DEAR[name]
    reader = arguments(annotation)
    with pytest.raises(InvalidArguments, match=r"send a part of them, at most \d+$") as refused:
        reader.read({"given": many(annotation, item, MANY)})
    most = int(str(refused.value).rpartition(" ")[2])
    assert reader.read({"given": many(annotation, item, most // 5)})
    assert most > FEW


def test_time_zones_that_are_looked_up_on_disk_are_fewer() -> None:
    reader = arguments(list[ZoneInfo | str])
    assert len(reader.read({"given": ["Europe/Berlin"] * 500})["given"]) == 500
    with pytest.raises(InvalidArguments, match="more values than can be read"):
        reader.read({"given": ["nowhere"] * 2000})


def test_values_inside_of_json_text_count() -> None:
    text = json.dumps(["192.0.2.1"] * MANY)
    with pytest.raises(InvalidArguments, match="more values than can be read"):
        arguments(Json[list[IPv4Network]]).read({"given": text})


def test_a_large_argument_that_is_cheap_beside_a_dear_one_is_read() -> None:
    def function(networks: list[IPv4Network], rows: list[list[int]], text: str) -> None: ...

    given = {"networks": ["192.0.2.0/24"] * FEW, "rows": [[1, 2]] * MANY, "text": "x" * 1_000_000}
    assert len(Arguments(function).read(given)["rows"]) == MANY


@pytest.mark.parametrize("bad", [[], ["x"]], ids=["valid", "invalid"])
def test_a_null_beside_large_arguments_makes_nothing_be_read_twice(bad: list[Any]) -> None:
    seen: list[int] = []
    reader = arguments(list[Annotated[int, AfterValidator(seen.append)]])
    given: Mapping[str, Any] = {"given": [*range(MANY), *bad], "other": None}
    if bad:
        with pytest.raises(InvalidArguments, match=r"given\.50000"):
            reader.read(given)
    else:
        assert reader.read(given)["other"] == 1
    assert len(seen) == MANY


@pytest.mark.parametrize("count", [1, MANY])
def test_a_validator_of_the_author_sees_null_beside_arguments_of_any_size(count: int) -> None:
    def function(
        given: list[int],
        other: Annotated[int, BeforeValidator(lambda value: 7 if value is None else value)] = 1,
    ) -> None: ...

    read = Arguments(function).read({"given": [1] * count, "other": None})
    assert read["other"] == 7


def test_a_null_that_is_required_is_named_beside_large_arguments() -> None:
    def function(given: list[int], other: int) -> None: ...

    with pytest.raises(InvalidArguments, match=r"^other: Input should be a valid integer"):
        Arguments(function).read({"given": [1] * MANY, "other": None})


BOUNDED = Annotated[str, Field(max_length=3, pattern="^a")]


@pytest.mark.parametrize("annotation", [str, int, float, bool, str | None, int | None, BOUNDED], ids=str)
def test_texts_numbers_and_bools_are_plain(annotation: Any) -> None:
    assert arguments(annotation).are_plain


NOT_PLAIN = {
    "a list": list[int],
    "a dict": dict[str, int],
    "anything": Any,
    "a model": Cat,
    "an enum": Colour,
    "a text that is read as JSON": Json[int],
    "a text with a validator": Annotated[str, AfterValidator(str.strip)],
    "a number or null with a validator": Annotated[int | None, BeforeValidator(lambda given: given)],
    "a default that is made": Annotated[str, Field(default_factory=str)],
    "a choice": int | str,
}


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_what_takes_long_to_read_or_runs_code_of_the_author_is_not_plain(name: str) -> None:
    assert not arguments(NOT_PLAIN[name]).are_plain
