"""Schemas of the author's models, and what of them a form may show (MCP "Elicitation", Requested Schema)."""

from __future__ import annotations

import enum
import math
import uuid
import warnings
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Annotated, Any, Literal

import mcp_types
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mcp_types._v2026_07_28 import PrimitiveSchemaDefinition
from pydantic import (
    AliasChoices,
    AliasPath,
    AnyUrl,
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    SecretStr,
    TypeAdapter,
    WithJsonSchema,
    create_model,
)

from gateway.authoring.forms.reading import form_of
from gateway.authoring.forms.schemas import form_content
from gateway.authoring.types.model_schemas import model_schema
from gateway.errors import AuthoringError
from gateway.json_schema.validation import SchemaValidator


def form_schema(model: type[BaseModel]) -> dict[str, Any]:
    return form_of(model).schema


PRIMITIVE = TypeAdapter[Any](PrimitiveSchemaDefinition)


class Colour(enum.Enum):
    """Red or green."""

    RED = "red"
    GREEN = "green"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Share(enum.Enum):
    HALF = 0.5
    ALL = 1.0


class Inner(BaseModel):
    n: int


class Everything(BaseModel):
    """All that a form can show."""

    text: str
    constrained: Annotated[str, Field(min_length=1, max_length=9, description="a text", title="Text")]
    pattern: Annotated[str, Field(pattern="^a")] = "a"
    number: float
    integer: Annotated[int, Field(ge=1, le=9)] = 5
    above: Annotated[int, Field(gt=1, lt=9)] = 5
    between: Annotated[int, Field(gt=1, ge=5, le=7, lt=9)] = 5
    yes: bool
    agreed: Literal[True]
    day: date
    moment: datetime
    link: AnyUrl
    clock: Annotated[time, WithJsonSchema({"type": "string"})]
    choice: Literal["a", "b"] = "a"
    only: Literal["a"]
    colour: Colour
    maybe_colour: Colour | None = None
    default_colour: Colour = Colour.RED
    size: Size
    level: Literal[1, 2]
    share: Share
    default_size: Size = Size.LARGE
    sizes: list[Size] = [Size.SMALL]
    levels: list[Literal[1, 2]]
    shown: Annotated[str, Field(json_schema_extra={"oneOf": [{"const": "a", "title": "A"}]})] = "a"
    named: Annotated[str, Field(json_schema_extra={"enum": ["a"], "enumNames": ["A"]})]
    listed: Annotated[list[str], Field(json_schema_extra={"items": {"type": "string", "enum": ["a"]}})]
    example: Annotated[str, Field(examples=["x"], deprecated=True)] = ""
    maybe: int | None
    maybe_default: str | None = None
    many: list[Literal["a", "b"]]
    many_colours: Annotated[list[Colour], Field(min_length=1, max_length=2)] = [Colour.RED]
    some: set[Literal["a", "b"]]
    maybe_many: list[Literal["a"]] | None = None
    day_default: date = date(2024, 1, 1)
    aliased: Annotated[int, Field(alias="anAlias")]


def test_a_form_shows_only_what_the_protocol_allows() -> None:
    schema = form_schema(Everything)
    for name, field in schema["properties"].items():
        assert PRIMITIVE.validate_python(field), name
        assert "$ref" not in field
        assert field.get("default", "") is not None
        assert field.get("format", "date") in ("email", "uri", "date", "date-time")
    params = {"mode": "form", "message": "?", "requestedSchema": schema}
    assert mcp_types.ElicitRequestFormParams.model_validate(params).mode == "form"
    assert schema.keys() == {"type", "properties", "required"}


SIZES = [{"const": "1", "title": "SMALL"}, {"const": "2", "title": "LARGE"}]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("text", {"type": "string"}),
        (
            "constrained",
            {"type": "string", "minLength": 1, "maxLength": 9, "description": "a text", "title": "Text"},
        ),
        ("integer", {"type": "integer", "minimum": 1, "maximum": 9, "default": 5}),
        ("agreed", {"type": "boolean"}),
        ("day", {"type": "string", "format": "date"}),
        ("moment", {"type": "string", "format": "date-time"}),
        ("link", {"type": "string", "format": "uri", "minLength": 1}),
        ("clock", {"type": "string"}),
        ("choice", {"type": "string", "enum": ["a", "b"], "default": "a"}),
        ("only", {"type": "string", "enum": ["a"]}),
        ("colour", {"type": "string", "enum": ["red", "green"], "description": "Red or green."}),
        ("maybe_colour", {"type": "string", "enum": ["red", "green"], "description": "Red or green."}),
        (
            "default_colour",
            {"type": "string", "enum": ["red", "green"], "description": "Red or green.", "default": "red"},
        ),
        ("above", {"type": "integer", "minimum": 2, "maximum": 8, "default": 5}),
        ("between", {"type": "integer", "minimum": 5, "maximum": 7, "default": 5}),
        ("level", {"type": "string", "enum": ["1", "2"]}),
        ("size", {"type": "string", "oneOf": SIZES}),
        ("default_size", {"type": "string", "oneOf": SIZES, "default": "2"}),
        ("share", {"type": "string", "oneOf": [{"const": "0.5", "title": "HALF"}, {"const": "1.0", "title": "ALL"}]}),
        ("sizes", {"type": "array", "items": {"anyOf": SIZES}, "default": ["1"]}),
        ("levels", {"type": "array", "items": {"type": "string", "enum": ["1", "2"]}}),
        ("shown", {"type": "string", "oneOf": [{"const": "a", "title": "A"}], "default": "a"}),
        ("named", {"type": "string", "enum": ["a"], "enumNames": ["A"]}),
        ("listed", {"type": "array", "items": {"type": "string", "enum": ["a"]}}),
        ("example", {"type": "string", "default": ""}),
        ("maybe", {"type": "integer"}),
        ("maybe_default", {"type": "string"}),
        ("many", {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}),
        ("some", {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}),
        ("maybe_many", {"type": "array", "items": {"type": "string", "enum": ["a"]}}),
        ("day_default", {"type": "string", "format": "date", "default": "2024-01-01"}),
        ("anAlias", {"type": "integer"}),
    ],
)
def test_a_field_of_a_form(name: str, expected: dict[str, Any]) -> None:
    assert form_schema(Everything)["properties"][name] == expected


def test_what_has_no_default_is_required() -> None:
    required = form_schema(Everything)["required"]
    assert "text" in required
    assert "maybe" in required
    assert "anAlias" in required
    assert "choice" not in required


def test_a_form_has_no_title_and_description_of_its_own_because_some_clients_refuse_them() -> None:
    class Titled(BaseModel):
        """A description."""

        model_config = ConfigDict(title="A title")
        n: int

    assert form_schema(Titled) == {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Nested(BaseModel):
    inner: Inner


class MaybeNested(BaseModel):
    inner: Inner | None = None


class Mapped(BaseModel):
    some: dict[str, int]


class Texts(BaseModel):
    some: list[str]


class Numbers(BaseModel):
    some: list[int]


class Flags(BaseModel):
    some: list[Literal[True, False]]


class Clock(BaseModel):
    clock: time


class Identity(BaseModel):
    identity: Annotated[uuid.UUID | None, Field(alias="id")]


class Positive(BaseModel):
    number: Annotated[float, Field(gt=0)]


class Below(BaseModel):
    number: Annotated[float, Field(lt=0)]


class Tens(BaseModel):
    number: Annotated[int, Field(multiple_of=10)]


class Widget(BaseModel):
    text: Annotated[str, Field(json_schema_extra={"x-widget": "area"})]


class Untitled(BaseModel):
    text: Annotated[str, Field(json_schema_extra={"oneOf": [{"const": "a"}]})]


class Pairs(enum.Enum):
    ONE = (1, 2)


class Tuples(BaseModel):
    pair: Pairs


class Pair(BaseModel):
    pair: tuple[int, str]


class Either(BaseModel):
    either: int | str


class Anything(BaseModel):
    anything: Any


class Mixed(BaseModel):
    mixed: Literal["a", 1]


class Exact(BaseModel):
    exact: Decimal


class Secret(BaseModel):
    password: SecretStr


class Recursive(BaseModel):
    child: Recursive | None = None


class Calls(BaseModel):
    call: Callable[[], int]


class Deep(BaseModel):
    name: Annotated[str, Field(validation_alias=AliasPath("user", "name"))]


class DeepChoice(BaseModel):
    name: Annotated[str, Field(validation_alias=AliasChoices(AliasPath("user", 0), "name"))]


class Whole(RootModel[int]):
    pass


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Nested, "Nested.inner: forms are flat"),
        (MaybeNested, "MaybeNested.inner: forms are flat"),
        (Mapped, "Mapped.some: forms are flat"),
        (Texts, "Texts.some: a list in a form must offer text choices"),
        (Numbers, "Numbers.some: a list in a form must offer text choices"),
        (Pair, "Pair.pair"),
        (Either, "Either.either: forms are flat"),
        (Anything, "Anything.anything: forms are flat"),
        (Mixed, "Mixed.mixed: forms are flat"),
        (Exact, "Exact.exact: forms are flat"),
        (Secret, "Secret.password: a form must not ask for secrets"),
        (
            Flags,
            "Flags.some: a list in a form must offer text choices, so list[Literal[True, False]] cannot be asked for",
        ),
        (Clock, "Clock.clock: a form has no field for the format 'time', so time cannot be asked for; use str"),
        (Identity, "Identity.id: a form has no field for the format 'uuid', so uuid.UUID | None cannot"),
        (
            Positive,
            "Positive.number: a form has no 'exclusiveMinimum', so float cannot be asked for; use ge instead of",
        ),
        (Below, "Below.number: a form has no 'exclusiveMaximum', so float cannot be asked for; use le instead of lt"),
        (Tens, "Tens.number: a form has no 'multipleOf', so int cannot be asked for; check it in a validator"),
        (Widget, "Widget.text: a form has no 'x-widget', so str cannot be asked for; leave it out"),
        (Untitled, "Untitled.text: a form has no such 'oneOf', so str cannot be asked for; give each choice a text"),
        (Tuples, "Tuples.pair: forms are flat, so Pairs cannot be asked for; use choices that are all texts"),
        (Recursive, "Recursive.child: forms are flat"),
        (Whole, "Whole: a form needs named fields"),
        (Calls, "Calls: Cannot generate a JsonSchema"),
        (Deep, "Deep.name: forms are flat"),
        (DeepChoice, "DeepChoice.name: forms are flat"),
    ],
)
def test_what_no_form_can_show_is_an_authors_error(model: type[BaseModel], message: str) -> None:
    with pytest.raises(AuthoringError) as caught:
        form_schema(model)
    assert str(caught.value).startswith(message)


class Aliases(BaseModel):
    one: Annotated[int, Field(alias="oneAlias")]
    two: Annotated[int, Field(validation_alias="twoAlias", serialization_alias="elsewhere")]
    three: Annotated[int, Field(validation_alias=AliasChoices("threeAlias", "other"))]
    four: int


class ByName(BaseModel):
    model_config = ConfigDict(validate_by_alias=False, validate_by_name=True)
    one: Annotated[int, Field(alias="oneAlias")]


@pytest.mark.parametrize(
    "made",
    [
        Aliases.model_validate({"oneAlias": 1, "twoAlias": 2, "threeAlias": 3, "four": 4}),
        ByName.model_validate({"one": 1}),
    ],
)
def test_a_form_names_its_fields_as_the_model_reads_them(made: BaseModel) -> None:
    filled = form_content(form_schema(type(made)), made)
    assert list(form_schema(type(made))["properties"]) == list(filled)
    assert type(made).model_validate_json(TypeAdapter(Any).dump_json(filled)) == made


def test_a_model_has_one_schema_for_reading_and_one_for_writing() -> None:
    class Told(BaseModel):
        day: Annotated[date, Field(validation_alias="in", serialization_alias="out")]

    assert model_schema(Told)["required"] == ["in"]
    assert model_schema(Told, mode="serialization")["required"] == ["out"]


# Schemas that the author gave


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"a": 1}, None),
        ({"a": 1.0}, None),
        ({"a": 2**200}, None),
        ({"a": "x"}, "a: 'x' is not of type 'integer'"),
        ({}, "'a' is a required property"),
        ([], "[] is not of type 'object'"),
    ],
)
def test_a_problem_says_where(value: Any, problem: str | None) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    assert SchemaValidator(schema).problem(value) == problem


def test_a_schema_that_is_none_is_an_authors_error() -> None:
    with pytest.raises(AuthoringError, match=r"not a valid JSON Schema: .* at \$\.properties\.a\.type"):
        SchemaValidator({"properties": {"a": {"type": "nonsense"}}})


def test_an_older_dialect_is_read_as_it_is() -> None:
    draft_4 = {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": True}
    assert SchemaValidator(draft_4).problem(1) is not None
    assert SchemaValidator(draft_4).problem(2) is None


@pytest.mark.parametrize("reference", ["https://elsewhere.example/schema", "file:///etc/passwd", "other.json"])
def test_a_reference_to_something_outside_is_an_authors_error_and_never_fetched(reference: str) -> None:
    with pytest.raises(AuthoringError, match=r"never fetched; copy it into \$defs"):
        SchemaValidator({"properties": {"a": {"$ref": reference}}})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}},
    ],
)
def test_a_schema_without_end_is_an_authors_error(schema: dict[str, Any]) -> None:
    with pytest.raises(AuthoringError, match="without end"):
        SchemaValidator(schema)


@pytest.mark.parametrize("pattern", ["(?=a)b", "(?<!a)b", r"(a)\1", "("])
def test_a_pattern_that_no_linear_engine_runs_is_an_authors_error_with_the_way_out(pattern: str) -> None:
    with pytest.raises(
        AuthoringError, match=r"pattern at \$\.properties\.a\.pattern .* check the value in the function"
    ):
        SchemaValidator({"properties": {"a": {"pattern": pattern}}})


@example(math.nan)
@example(-math.inf)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists))
def test_no_value_breaks_validation(value: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "number", "multipleOf": 0.1}, "t": {"type": "string", "pattern": "^a+$"}},
        "uniqueItems": True,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert SchemaValidator(schema).problem({"n": value, "t": value}) is not None or isinstance(value, int)


def test_a_member_with_two_names_is_one_choice() -> None:
    class Number(enum.IntEnum):
        A = 1
        B = 2
        C = 1

    class Word(enum.Enum):
        A = "a"
        B = "b"
        C = "a"  # noqa: PIE796 - the second name

    class Form(BaseModel):
        number: Number
        word: Word
        words: list[Word]

    fields = form_schema(Form)["properties"]
    assert fields["number"]["oneOf"] == [{"const": "1", "title": "A"}, {"const": "2", "title": "B"}]
    assert fields["word"]["enum"] == fields["words"]["items"]["enum"] == ["a", "b"]


@pytest.mark.parametrize(
    ("kind", "digest"),
    [
        (Annotated[int, Field(gt=1, lt=9)], "15f48d8435466fff66993a38"),
        (Literal[True], "0adfd8c8d91fef2b05a2a9f9"),
        (set[Literal["a", "b"]], "4b33b6fe08281ebcefca63b0"),
        (Annotated[str, Field(examples=["a"])], "5a2fdb5ddccd0734edfcfeb4"),
        (Annotated[str, Field(deprecated=True)], "dae4d443b2e9d7234b1fcd3b"),
    ],
)
def test_what_a_form_no_longer_shows_keeps_its_digest_of_release_0_1(kind: Any, digest: str) -> None:
    assert form_of(create_model("M", x=(kind, ...))).digest.hex() == digest
