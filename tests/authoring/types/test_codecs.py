"""Codecs of type annotations, and where annotations are found."""

from __future__ import annotations

import datetime as dt
import enum
import functools
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from decimal import Decimal
from inspect import Parameter
from typing import Annotated, Any, Literal, TypedDict, Union

import pytest
from pydantic import BaseModel, ConfigDict, Field, JsonValue, computed_field

from gateway.authoring.types.codecs import Codec, codec_for, return_annotation
from gateway.errors import AuthoringError

OWNER = "the step 'fetch'"


class Colour(enum.Enum):
    RED = "red"


class Invoice(BaseModel):
    model_config = ConfigDict(extra="forbid")

    number: int = Field(alias="invoiceNumber", serialization_alias="no")

    @computed_field  # type: ignore[prop-decorator]  # as pydantic's guide has it
    @property
    def next(self) -> int:
        return self.number + 1


@dataclass
class Picture:
    data: bytes
    invoice: Invoice | None = None


class Basket(TypedDict):
    """One of `typing`, which pydantic does not read on Python 3.11."""

    pictures: list[Picture]


class Unknown: ...


def codec(annotation: Any) -> Codec:
    made = codec_for(annotation, OWNER)
    assert made is not None
    return made


@pytest.mark.parametrize(
    "annotation",
    [
        *(str, int, float, bool, None, dict, list, Any, object, JsonValue, Parameter.empty),
        *(dict[str, Any], list[str], dict[str, list[int]], int | None, Literal["a", 1, None]),
    ],
    ids=str,
)
def test_json_needs_no_codec(annotation: Any) -> None:
    assert codec_for(annotation, OWNER) is None


@pytest.mark.parametrize(
    ("annotation", "value", "written"),
    [
        (Invoice, Invoice(invoiceNumber=1), {"number": 1}),
        (Picture, Picture(b"\xff", Invoice(invoiceNumber=1)), {"data": "_w==", "invoice": {"number": 1}}),
        (Basket, {"pictures": [Picture(b"")]}, {"pictures": [{"data": "", "invoice": None}]}),
        (dict[Colour, set[int]], {Colour.RED: {1}}, {"red": [1]}),
        (Decimal, Decimal("1.50"), "1.50"),
        (tuple[int, dt.date], (1, dt.date(2024, 1, 2)), [1, "2024-01-02"]),
        (Invoice | Picture, Picture(b"a"), {"data": "YQ==", "invoice": None}),
    ],
    ids=str,
)
def test_a_value_is_read_as_it_was_written(annotation: Any, value: Any, written: Any) -> None:
    assert codec(annotation).encode(value, "it") == written
    assert codec(annotation).decode(written, "it") == value


@pytest.mark.parametrize(
    ("annotation", "value", "problem"),
    [
        (Invoice, {"number": "my secret"}, "it is not a valid Invoice: invoiceNumber: Field required"),
        (list[Picture], [Picture("my secret")], "it cannot be written as JSON: the field data has a value"),  # type: ignore[arg-type]
        (tuple[float, ...], (float("inf"),), "it[0]: inf is not a JSON number"),
        (Decimal, Decimal("nan"), "it is not a valid Decimal: Input should be a finite number"),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_is_an_error_that_quotes_nothing(annotation: Any, value: Any, problem: str) -> None:
    with pytest.raises(AuthoringError) as refused:
        codec(annotation).encode(value, "it")
    assert str(refused.value).startswith(problem)
    assert "my secret" not in str(refused.value)


def test_what_an_older_type_has_written_may_not_be_readable() -> None:
    with pytest.raises(AuthoringError, match=r"^it cannot be read as Invoice: number: Field required") as refused:
        codec(Invoice).decode({"id": "my secret"}, "it")
    assert "my secret" not in str(refused.value)


def test_many_problems_are_counted() -> None:
    with pytest.raises(AuthoringError, match=r"; and 40 more$"):
        codec(list[dt.date]).encode(["x"] * 50, "it")


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        (Unknown, "the type Unknown has no JSON form; use a pydantic model"),
        (dict[str, list[Unknown]], "the type Unknown in dict[str, list[Unknown]] has no JSON form; use a pydantic"),
        (list["Nowhere"], "the type list['Nowhere'] cannot be resolved, because 'Nowhere' is not defined; define"),  # type: ignore[name-defined]  # noqa: F821 - which is the mistake
    ],
    ids=str,
)
def test_a_type_that_cannot_be_served_is_named_with_its_owner_and_a_way_out(annotation: Any, problem: str) -> None:
    with pytest.raises(AuthoringError) as refused:
        codec_for(annotation, OWNER)
    assert str(refused.value).startswith(f"{OWNER}: {problem}")


def test_a_codec_is_made_once_for_each_annotation() -> None:
    assert codec(list[Invoice]) is codec(list[Invoice])
    assert codec(Invoice | Picture) is not codec(Picture | Invoice)  # equal, but the first one that fits wins
    assert codec(Annotated[Decimal, {"not": "hashable"}]).encode(Decimal(1), "it") == "1"


def test_the_schema_of_a_codec_describes_what_it_writes() -> None:
    assert codec(list[dt.date]).schema() == {"type": "array", "items": {"type": "string", "format": "date"}}
    assert "number" in codec(Invoice).schema()["$defs"]["Invoice"]["properties"]


def load() -> Later:
    raise NotImplementedError


class Loader:
    def load(self) -> list[Later]:
        raise NotImplementedError

    async def __call__(self) -> Later:
        raise NotImplementedError


def promise() -> Awaitable[Later]:
    raise NotImplementedError


def coroutine() -> Coroutine[Any, Any, Later | None]:
    raise NotImplementedError


def silent():  # type: ignore[no-untyped-def]  # which is the case
    raise NotImplementedError


class Later(BaseModel): ...


@pytest.mark.parametrize(
    ("function", "annotation"),
    [
        (load, Later),
        (functools.partial(functools.partial(load)), Later),
        (Loader().load, list[Later]),
        (Loader(), Later),
        (Later, Later),
        (promise, Later),
        (coroutine, Union[Later, None]),  # noqa: UP007 - equal to what the text says
        (silent, Parameter.empty),
        (lambda: 1, Parameter.empty),
        (print, Parameter.empty),
    ],
)
def test_the_annotation_of_any_callable_is_found(function: Callable[..., Any], annotation: Any) -> None:
    assert return_annotation(function) == annotation


def test_a_type_inside_a_function_is_found_if_the_function_uses_it() -> None:
    class Local(BaseModel): ...

    def make() -> Local | None:
        return Local()

    assert return_annotation(make) == (Local | None)


def test_a_name_that_is_not_defined_is_an_authors_error() -> None:
    def lost() -> Nowhere:  # type: ignore[name-defined]  # noqa: F821 - which is the mistake
        raise NotImplementedError

    with pytest.raises(AuthoringError, match="lost: the annotation 'Nowhere' is not defined in its module"):
        return_annotation(lost)
