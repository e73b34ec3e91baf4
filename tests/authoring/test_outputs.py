"""Output schemas and structured results, made from return annotations."""

from __future__ import annotations

import datetime as dt
import enum
import json
import traceback
import typing
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, NoReturn, NotRequired
from uuid import UUID

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types.methods import validate_server_result
from pydantic import BaseModel, ConfigDict, Field, RootModel, computed_field, field_serializer
from typing_extensions import TypedDict

from gateway import Content, InputRequired, ToolResult, content, tool
from gateway.authoring.outputs import output_of
from gateway.authoring.types.codecs import codec_for
from gateway.errors import AuthoringError
from gateway.testing import run


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Report(BaseModel):
    model_config = ConfigDict(extra="forbid")

    day: dt.date
    total: int = Field(alias="sum", default=3)

    @computed_field  # type: ignore[prop-decorator]  # as pydantic's guide has it
    @property
    def double(self) -> int:
        return 2 * self.total


class Node(BaseModel):
    name: str
    inner: list[Node] = []


@dataclass
class Place:
    at: tuple[int, Decimal]
    tags: set[str] = field(default_factory=set)


class Row(TypedDict):
    id: UUID
    place: NotRequired[Place]


class StandardRow(typing.TypedDict):
    id: UUID
    rows: list[Row]


class Pair(NamedTuple):
    left: int
    right: dt.timedelta


LYING = Place((1, Decimal(1)), tags="my secret")  # type: ignore[arg-type]  # which is the mistake
EMPTY = Place(None)  # type: ignore[arg-type]  # as above
UserId = NewType("UserId", str)

dates = st.dates(min_value=dt.date(1970, 1, 1), max_value=dt.date(2100, 1, 1))
decimals = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=3)
texts = st.text(st.characters(codec="utf-8"), max_size=8)
places = st.builds(Place, st.tuples(st.integers(), decimals), st.sets(texts, max_size=2))
rows: st.SearchStrategy[Any] = st.fixed_dictionaries({"id": st.uuids()}, optional={"place": places})
reports = st.builds(lambda day, total: Report(day=day, sum=total), dates, st.integers())

HASHABLE: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, st.integers()),
    (str, texts),
    (bool, st.booleans()),
    (dt.date, dates),
    (UUID, st.uuids()),
    (Decimal, decimals),
    (Colour, st.sampled_from(Colour)),
    (Level, st.sampled_from(Level)),
    (Literal["a", 1], st.sampled_from(["a", 1])),
    (Annotated[int, Field(ge=0)], st.integers(min_value=0)),
    (dt.timedelta, st.timedeltas(dt.timedelta(0), dt.timedelta(days=99))),
    (dt.datetime, st.datetimes(dt.datetime(1970, 1, 1), timezones=st.sampled_from([dt.UTC, None]))),  # noqa: DTZ001
    (bytes, texts.map(str.encode)),
]
OTHERS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (type(None), st.none()),
    (Report, reports),
    (Node, st.builds(Node, name=texts, inner=st.lists(st.builds(Node, name=texts), max_size=2))),
    (Place, places),
    (Row, rows),
    (StandardRow, st.fixed_dictionaries({"id": st.uuids(), "rows": st.lists(rows, max_size=2)})),
    (Pair, st.builds(Pair, st.integers(), st.timedeltas(dt.timedelta(0), dt.timedelta(days=9)))),
    (dict[str, Any], st.dictionaries(texts, st.integers() | texts, max_size=2)),
]


def sets_of(typed: tuple[Any, st.SearchStrategy[Any]]) -> tuple[Any, st.SearchStrategy[Any]]:
    kind, values = typed
    return set[kind], st.sets(values, max_size=3)  # type: ignore[valid-type]  # made at run time


def containers(typed: tuple[Any, st.SearchStrategy[Any]]) -> st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]]:
    """Return some annotations of containers, each with a strategy for its values."""
    kind, values = typed
    return st.sampled_from(
        [
            (list[kind], st.lists(values, max_size=3)),  # type: ignore[valid-type]  # as above
            (dict[str, kind], st.dictionaries(texts, values, max_size=2)),  # type: ignore[valid-type]
            (dict[int, kind], st.dictionaries(st.integers(), values, max_size=2)),  # type: ignore[valid-type]
            (tuple[kind, int], st.tuples(values, st.integers())),  # type: ignore[valid-type]
            (tuple[kind, ...], st.lists(values, max_size=2).map(tuple)),  # type: ignore[valid-type]
            (kind | None, st.none() | values),
            (Sequence[kind], st.lists(values, max_size=2)),  # type: ignore[valid-type]
        ]
    )


typed_strategies = st.recursive(
    st.sampled_from(HASHABLE + OTHERS) | st.sampled_from(HASHABLE).map(sets_of),
    lambda inner: inner.flatmap(containers),
    max_leaves=3,
)


@st.composite
def annotated_values(draw: st.DrawFn) -> tuple[Any, Any]:
    kind, values = draw(typed_strategies)
    return kind, draw(values)


@given(annotated_values())
def test_every_result_fits_its_output_schema_and_can_be_read_again(typed: tuple[Any, Any]) -> None:
    annotation, value = typed
    output = output_of(annotation, "the tool 't'")
    if output is None:
        assert annotation in (str, type(None), str | None)
        return
    assert output.schema["type"] == "object"
    structured = output.result(value, "the tool 't'")["structuredContent"]
    jsonschema_rs.validator_for(output.schema, validate_formats=True).validate(structured)
    assert json.loads(json.dumps(structured)) == structured


@given(annotated_values())
def test_every_recorded_value_is_read_as_it_was_written(typed: tuple[Any, Any]) -> None:
    annotation, value = typed
    codec = codec_for(annotation, "the step 's'")
    if codec is None:
        return
    written = json.loads(json.dumps(codec.encode(value, "it")))
    assert codec.decode(written, "it") == value


def returning(annotation: Any) -> Any:
    async def function() -> None: ...

    function.__annotations__["return"] = annotation
    return tool("t")(function)


def one(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"result": schema}, "required": ["result"]}


PLACE = {
    "type": "object",
    "properties": {
        "at": {
            "type": "array",
            "prefixItems": [{"type": "integer"}, {"type": "string"}],
            "minItems": 2,
            "maxItems": 2,
        },
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    },
    "required": ["at"],
}


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (Place, PLACE),
        (Place | ToolResult, PLACE),
        (Place | InputRequired, PLACE),
        (dict[str, Place], {"type": "object", "additionalProperties": PLACE}),
        (dict[str, Any], {"type": "object", "additionalProperties": True}),
        (Place | None, one({"anyOf": [PLACE, {"type": "null"}]})),
        (list[Place], one({"type": "array", "items": PLACE})),
        (int, one({"type": "integer"})),
        (float | ToolResult, one({"type": "number"})),
        (RootModel[list[int]], one({"type": "array", "items": {"type": "integer"}})),
        (dt.date, one({"type": "string", "format": "date"})),
        (dt.datetime, one({"type": "string"})),
        (UserId, one({"type": "string"})),
        (StandardRow, {"type": "object", "properties": {"id": {"type": "string", "format": "uuid"}}}),
        *((nothing, None) for nothing in (str, None, Any, object, dict, list, NoReturn, ToolResult, InputRequired)),
        *((text, None) for text in (str | None, Annotated[str, Field(max_length=3)], str | ToolResult)),
        *((blocks, None) for blocks in (Content, list[Content], list[str | Content], Place | Content)),
    ],
    ids=str,
)
def test_a_return_annotation_is_the_output_schema(annotation: Any, schema: Any) -> None:
    entry = returning(annotation).catalogue_entry()
    if annotation is StandardRow:
        del entry["outputSchema"]["properties"]["rows"], entry["outputSchema"]["required"]
    assert entry.get("outputSchema") == schema


@pytest.mark.parametrize(
    ("annotation", "value", "texts", "structured"),
    [
        (int, 3, ["3"], {"result": 3}),
        (list[int], [3, 4], ["[3,4]"], {"result": [3, 4]}),
        (list[str], ["é", ""], ['["é",""]'], {"result": ["é", ""]}),
        (tuple[int, str], (3, "a"), ['[3,"a"]'], {"result": [3, "a"]}),
        (list[int], [], ["[]"], {"result": []}),
        (set[int], {3}, ["[3]"], {"result": [3]}),
        (Place, {"at": (1, "2.50")}, ['{"at":[1,"2.50"],"tags":[]}'], {"at": [1, "2.50"], "tags": []}),
        (Place | None, None, [], {"result": None}),
        (Colour, Colour.RED, ['"red"'], {"result": "red"}),
        (Literal["a", 1], "a", ["a"], {"result": "a"}),
        (dict[Colour, int], {Colour.RED: 1}, ['{"red":1}'], {"red": 1}),
        (list[Any], [content.text("a"), 1], ["a", "1"], {"result": [{"type": "text", "text": "a"}, 1]}),
        (
            Report | Place,
            Place((1, Decimal(2))),
            ['{"at":[1,"2"],"tags":[]}'],
            {"result": {"at": [1, "2"], "tags": []}},
        ),
    ],
    ids=str,
)
def test_a_result_is_structured_content_and_text(
    annotation: Any, value: Any, texts: list[str], structured: Any
) -> None:
    result = returning(annotation).result(value, "t")
    assert [block["text"] for block in result["content"]] == texts
    assert result["structuredContent"] == structured


def test_a_model_keeps_what_a_subclass_adds() -> None:
    class Branch(Node):
        leaves: int = 3

    result = returning(Node).result(Branch(name="b"), "t")
    assert result["structuredContent"] == {"name": "b", "inner": [], "leaves": 3}


@pytest.mark.parametrize(
    ("annotation", "value", "problem"),
    [
        (
            Report,
            {"sum": "my secret"},
            "did not return a valid Report: day: Field required; sum: Input should be a valid integer",
        ),
        (list[Place], [{"at": (1,)}], "did not return a valid list[Place]: 0.at.1: Field required"),
        (int, None, "did not return a valid int: Input should be a valid integer"),
        (float, float("nan"), "the tool 't': the result: nan is not a JSON number"),
        (bytes, b"\xff my secret", "the result: bytes cannot be converted to JSON: bytes that are not UTF-8"),
        (Place, LYING, "the result: Place cannot be converted to JSON: the field tags has a value of the wrong type"),
        (
            list[Place],
            [EMPTY],
            'returned a value that its output schema does not allow: result.0.at: the value is not of type "array"',
        ),
    ],
)
def test_a_result_that_does_not_fit_is_an_authors_error(annotation: Any, value: Any, problem: str) -> None:
    with pytest.raises(AuthoringError) as refused:
        returning(annotation).result(value, "t")
    assert problem in str(refused.value)
    assert "my secret" not in "".join(traceback.format_exception(refused.value))


def test_a_result_spelled_out_has_to_fit_too() -> None:
    made = returning(int | ToolResult)
    spelled = ToolResult(content=[content.text("four")], structured={"result": 4}, meta={"cost": 1})
    assert made.result(spelled, "t") == {
        "content": [{"type": "text", "text": "four"}],
        "structuredContent": {"result": 4},
        "_meta": {"cost": 1},
        "isError": False,
    }
    with pytest.raises(AuthoringError, match="its output schema does not allow: result: the value is not"):
        made.result(ToolResult(content=[], structured={"result": "x"}), "t")
    assert made.result(content.error("no"), "t")["isError"]


def test_a_serializer_has_to_keep_to_its_type() -> None:
    class Priced(BaseModel):
        price: int

        @field_serializer("price")
        def _in_euros(self, price):  # type: ignore[no-untyped-def]  # which is the mistake
            return f"{price} euros"

    with pytest.raises(AuthoringError, match="output schema does not allow: price: the value is not of type"):
        returning(Priced).result(Priced(price=3), "t")


@pytest.mark.parametrize(
    ("extra", "problem"),
    [({"pattern": "("}, "regex"), ({"$ref": "https://example.com/"}, "example"), ({"type": "intger"}, "not valid")],
    ids=str,
)
def test_a_schema_that_is_not_valid_is_an_error_at_import(extra: Any, problem: str) -> None:
    with pytest.raises(AuthoringError, match=f"the return type of the tool 't' has no valid JSON Schema: .*{problem}"):
        returning(Annotated[int, Field(json_schema_extra=extra)])


class Unknown: ...


@pytest.mark.parametrize("annotation", [Unknown, list[Unknown], Unknown | None, Callable[[], int]], ids=str)
def test_a_type_without_a_json_form_is_an_error_at_import(annotation: Any) -> None:
    with pytest.raises(AuthoringError, match=r"^the return type of the tool 't': the type .* has no JSON form; use a "):
        returning(annotation)


def test_a_return_annotation_is_found_where_the_function_is_defined() -> None:
    class Local(BaseModel):
        here: int

    @tool
    async def find() -> Local:
        return Local(here=1)

    @tool
    def promise() -> Awaitable[Later]:
        raise NotImplementedError

    assert find.output_schema == {"type": "object", "properties": {"here": {"type": "integer"}}, "required": ["here"]}
    assert run(find).result["structuredContent"] == {"here": 1}
    assert promise.output_schema == one({"type": "integer"})


Later = NewType("Later", int)


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("annotation", [Node, Place, Row, int, Place | None, list[Report]], ids=str)
def test_an_entry_with_an_output_schema_is_what_the_protocol_says(annotation: Any, version: str) -> None:
    entry = returning(annotation).catalogue_entry()
    listed = {"tools": [entry], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    validate_server_result("tools/list", version, listed)
