"""Questions without a model: a type or a list of choices becomes a form with one field."""

from __future__ import annotations

import enum
import re
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType

import pytest
from mcp_types._v2026_07_28 import PrimitiveSchemaDefinition
from pydantic import (
    AfterValidator,
    AnyUrl,
    BaseModel,
    Field,
    ImportString,
    Json,
    SecretStr,
    TypeAdapter,
    WithJsonSchema,
)
from typing_extensions import TypeAliasType, TypedDict

from gateway import AuthoringError, Context, Elicit, InputRequired, PlainContext, tool
from gateway.authoring.forms import reading
from gateway.authoring.forms.questions import wire_ask
from gateway.authoring.forms.reading import form_of
from gateway.engine.questions import InvalidAnswer, Question
from gateway.errors import Declined
from gateway.testing import DECLINE, run

PRIMITIVE = TypeAdapter[Any](PrimitiveSchemaDefinition)


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


@dataclass
class Place:
    city: str
    size: Size = Size.SMALL


class Drink(TypedDict):
    name: str


Age = NewType("Age", int)
Fruit = TypeAliasType("Fruit", Literal["apple", "pear"])
SIZES = [{"const": "1", "title": "SMALL"}, {"const": "2", "title": "LARGE"}]
RED_GREEN = {"type": "string", "enum": ["red", "green"]}
TITLED: Any = [("a", "An a"), "b"]
CLOCK = Annotated[time, WithJsonSchema({"type": "string"})]

ONE_FIELD: Sequence[tuple[Any, dict[str, Any], Any, Any]] = [
    (str, {"type": "string"}, "Ada", "Ada"),
    (int, {"type": "integer"}, 5.0, 5),
    (float, {"type": "number"}, 5, 5.0),
    (bool, {"type": "boolean"}, False, False),
    (date, {"type": "string", "format": "date"}, "2024-02-29", date(2024, 2, 29)),
    (datetime, {"type": "string", "format": "date-time"}, "2024-02-29T08:00:00Z", datetime(2024, 2, 29, 8, tzinfo=UTC)),
    (AnyUrl, {"type": "string", "format": "uri", "minLength": 1}, "https://a.example/", AnyUrl("https://a.example/")),
    (Colour, RED_GREEN, "green", Colour.GREEN),
    (Size, {"type": "string", "oneOf": SIZES}, "2", Size.LARGE),
    (Literal["b", "a"], {"type": "string", "enum": ["b", "a"]}, "a", "a"),
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, "a", "a"),
    (Literal[1, 2], {"type": "string", "enum": ["1", "2"]}, "2", 2),
    (list[Literal["a", "b"]], {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}, ["b"], ["b"]),
    (list[Literal["b", "a"]], {"type": "array", "items": {"type": "string", "enum": ["b", "a"]}}, ["b"], ["b"]),
    (list[Colour], {"type": "array", "items": RED_GREEN}, ["red", "green"], [Colour.RED, Colour.GREEN]),
    (set[Size], {"type": "array", "items": {"anyOf": SIZES}}, ["2", "1"], {Size.SMALL, Size.LARGE}),
    (Annotated[str, Field(title="Name", max_length=5)], {"type": "string", "title": "Name", "maxLength": 5}, "A", "A"),
    (Annotated[int, Field(gt=0, le=9)], {"type": "integer", "minimum": 1, "maximum": 9}, 9, 9),
    (Annotated[str, Field(default="x")], {"type": "string", "default": "x"}, "A", "A"),
    (Annotated[str, {"unhashable"}], {"type": "string"}, "A", "A"),
    (CLOCK, {"type": "string"}, "08:00", time(8)),
    (Age, {"type": "integer"}, 5, 5),
    (Fruit, {"type": "string", "enum": ["apple", "pear"]}, "pear", "pear"),
    (int | None, {"type": "integer"}, 5, 5),
    (["a", "b"], {"type": "string", "enum": ["a", "b"]}, "b", "b"),
    ([["a", "b"]], {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}, ["b"], ["b"]),
    (TITLED, {"type": "string", "oneOf": [{"const": "a", "title": "An a"}, {"const": "b", "title": "b"}]}, "a", "a"),
    ([[("a", "An a")]], {"type": "array", "items": {"anyOf": [{"const": "a", "title": "An a"}]}}, ["a"], ["a"]),
]


def accept(content: dict[str, Any]) -> dict[str, Any]:
    return {"result": {"action": "accept", "content": content}}


def asked(kind: Any, message: str = "") -> Question:
    return Elicit(message, kind).question("k")


@pytest.mark.parametrize(("kind", "field", "given", "value"), ONE_FIELD, ids=lambda part: str(part)[:40])
def test_a_type_without_fields_is_asked_for_as_value_and_returned_as_that_type(
    kind: Any, field: dict[str, Any], given: Any, value: Any
) -> None:
    question = asked(kind)
    (name,) = question.params["requestedSchema"]["properties"]
    assert name == "value"
    assert question.params["requestedSchema"]["properties"]["value"] == field
    assert PRIMITIVE.validate_python(field)
    read = question.read(accept({"value": given}))
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize("kind", [kind for kind, *_ in ONE_FIELD if kind != int | None], ids=str)
def test_the_only_field_is_required(kind: Any) -> None:
    default = "default=" in str(kind)
    assert asked(kind).params["requestedSchema"].get("required") == (None if default else ["value"])


def test_the_only_field_may_stay_empty_if_none_is_allowed() -> None:
    for kind in (int | None, Annotated[int | None, Field(ge=0)]):
        question = asked(kind)
        assert "required" not in question.params["requestedSchema"]
        assert question.read(accept({})) is None
        assert question.read(accept({"value": 5})) == 5


WRONG: Sequence[tuple[Any, Any, str]] = [
    (str, 5, "Input should be a valid string"),
    (int, "5", "Input should be a valid integer"),
    (int, 5.5, "Input should be a valid integer"),
    (bool, "yes", "Input should be a valid boolean"),
    (date, "29 February", "Input should be a valid date"),
    (Colour, "blue", "Input should be 'red' or 'green'"),
    (Size, "3", "Input should be 1 or 2"),
    (Size, "SMALL", "Input should be 1 or 2"),
    (Literal["a"], "b", "Input should be 'a'"),
    (list[Colour], ["blue"], "0: Input should be 'red' or 'green'"),
    (list[Size], [["1"]], "0: Input should be 1 or 2"),
    (["a", "b"], "c", "Input should be 'a' or 'b'"),
    ([[("a", "An a")]], ["An a"], "0: Input should be 'a'"),
    (TITLED, "An a", "Input should be 'a' or 'b'"),
    (Annotated[str, Field(max_length=1)], "ab", "String should have at most 1 character"),
]


@pytest.mark.parametrize(("kind", "given", "reason"), WRONG, ids=str)
def test_what_does_not_fit_is_asked_again_with_the_reason_alone(kind: Any, given: Any, reason: str) -> None:
    with pytest.raises(InvalidAnswer) as caught:
        asked(kind).read(accept({"value": given}))
    assert str(caught.value).startswith(reason)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (dict[str, int], r"dict\[str, int\]: forms are flat"),
        (list[str], r"list\[str\]: a list in a form must offer text choices, so list\[str\] .* use list\[Literal"),
        (int | str, r"int \| str: forms are flat"),
        (Any, "Any: forms are flat"),
        (object, "object: "),
        (Decimal, "Decimal: forms are flat"),
        (bytes, "bytes: a form has no field for the format 'binary'"),
        (time, "time: a form has no field for the format 'time', .* WithJsonSchema"),
        (SecretStr, "SecretStr: a form must not ask for secrets; send the user to a page with elicit_url"),
        (Annotated[float, Field(gt=0)], "float: a form has no 'exclusiveMinimum', .* use ge instead of gt"),
        (Literal["a", 1], "forms are flat, .* use choices that are all texts, or all numbers"),
        (ImportString, "ImportString would import what callers send; take a str"),
        (Annotated[re.Pattern[str], WithJsonSchema({"type": "string"})], "re.Pattern would compile what callers send"),
        (
            Annotated[Json[list[int]], WithJsonSchema({"type": "string"})],
            "a form cannot ask for values as a text of JSON",
        ),
        ([], "a list of choices needs different texts, or pairs of a text and a title"),
        ([[]], "a list of choices needs different texts"),
        ([1, 2], r"at least one; for numbers, use Literal\[1, 2\]"),
        (["a", "a"], "a list of choices needs different texts"),
        ([("a", 1)], "a list of choices needs different texts"),
        ([["a"], ["b"]], "a list of choices needs different texts"),
        (("a", "b"), "neither a type, a list of choices nor a JSON Schema"),
        (None, "None is neither a type, .* to let the user confirm, use bool"),
        ("str", "an object of the type str is neither a type"),
        ({"low": {"title": "Low"}}, "for choices with titles, use a list of pairs"),
    ],
    ids=str,
)
def test_what_no_form_can_ask_for_is_an_authors_error_with_the_way_out(kind: Any, message: str) -> None:
    with pytest.raises(AuthoringError, match=message):
        asked(kind)
    with pytest.raises(AuthoringError, match=message):

        @tool(asks={"what": kind})
        async def asks(ctx: Context) -> None:
            """Ask."""


def test_a_dataclass_and_a_typed_dict_are_forms_like_a_model() -> None:
    place = asked(Place)
    size = {"type": "string", "oneOf": SIZES, "default": "1"}
    assert place.params["requestedSchema"]["properties"] == {"city": {"type": "string"}, "size": size}
    assert place.read(accept({"city": "Ulm", "size": "2"})) == Place("Ulm", Size.LARGE)
    assert asked(Annotated[Place, "a note"]).read(accept({"city": "Ulm"})) == Place("Ulm")
    assert asked(Drink).read(accept({"name": "tea"})) == {"name": "tea"}
    with pytest.raises(InvalidAnswer, match="name: Field required"):
        asked(Drink).read(accept({}))


def test_the_field_has_the_message_as_its_title_which_is_no_part_of_the_digest() -> None:
    question = asked(str, "Who are you?\nTell me.")
    assert question.params["requestedSchema"]["properties"]["value"] == {"title": "Who are you?", "type": "string"}
    assert question.digest == asked(str, "Your name?").digest == asked(str).digest
    assert asked(Annotated[str, Field(title="Name")], "Who?").params["requestedSchema"]["properties"]["value"] == {
        "title": "Name",
        "type": "string",
    }


def test_the_order_of_the_choices_is_that_of_the_author_whatever_was_asked_before() -> None:
    assert choices_of(Literal["x", "y"]) == choices_of(list[Literal["x", "y"]]) == ["x", "y"]
    assert choices_of(Literal["y", "x"]) == choices_of(list[Literal["y", "x"]]) == ["y", "x"]
    assert asked(Literal["x", "y"]).digest != asked(Literal["y", "x"]).digest


def choices_of(kind: Any) -> list[str]:
    field = asked(kind).params["requestedSchema"]["properties"]["value"]
    return list(field.get("items", field)["enum"])


def test_a_form_is_made_once() -> None:
    for make in (lambda: str, lambda: Literal["a", "z"], lambda: ["a", "z"], lambda: list[Colour], lambda: Place):
        assert form_of(make()) is form_of(make())


def test_lists_of_choices_that_differ_in_each_call_do_not_fill_the_memory() -> None:
    before = len(reading._forms)
    for number in range(3):
        asked([f"file-{number}"]).read(accept({"value": f"file-{number}"}))
    assert len(reading._forms) == before


def test_a_stored_choice_is_read_by_its_schema() -> None:
    question = asked(["tea", "milk"])
    again = wire_ask(question.method, question.params, question.digest).question("k")
    again.read(accept({"value": "tea"}))
    with pytest.raises(InvalidAnswer):
        again.read(accept({"value": "coffee"}))


def test_a_stored_question_with_several_fields_is_read_as_its_type() -> None:
    class Shirt(BaseModel):
        name: Annotated[str, Field(max_length=77), AfterValidator(str.upper)]
        size: Size

    question = asked(Shirt, "What?")
    again = wire_ask(question.method, question.params, question.digest).question("k")
    assert again.read(accept({"name": "ada", "size": "2"})) == Shirt(name="ADA", size=Size.LARGE)


def test_a_stored_question_with_one_field_is_read_by_its_schema_which_other_tools_may_share() -> None:
    def refuse(code: str) -> str:
        raise ValueError("not a code")

    question = asked(Annotated[str, Field(max_length=78), AfterValidator(refuse)])
    again = wire_ask(question.method, question.params, question.digest).question("k")
    again.read(accept({"value": "Ada"}))
    with pytest.raises(InvalidAnswer):
        again.read(accept({"value": 5}))


@tool(asks={"name": str, "size": Size, "colours": list[Colour], "day": date, "sure": Elicit("?", bool, default=False)})
async def order(ctx: Context) -> str:
    """Ask for everything."""
    name = await ctx.elicit("name", "Who are you?", str)
    got = await ctx.ask(size=Elicit("Which size?", Size), colours=Elicit("Which colours?", list[Colour]))
    day = await ctx.elicit("day", "When?", date)
    sure = await ctx.elicit("sure", "Sure?", bool, default=False)
    return f"{name} {got['size']!r} {got['colours']} {day!r} {sure}"


TEXT = "Ada <Size.LARGE: 2> [<Colour.RED: 'red'>] datetime.date(2024, 2, 29) "


@pytest.mark.parametrize(
    "answers",
    [
        {"name": "Ada", "size": Size.LARGE, "colours": [Colour.RED], "day": date(2024, 2, 29), "sure": True},
        {
            "name": {"value": "Ada"},
            "size": {"value": "2"},
            "colours": {"value": ["red"]},
            "day": {"value": "2024-02-29"},
            "sure": {"value": True},
        },
    ],
)
@pytest.mark.parametrize("as_task", [False, True])
def test_a_tool_asks_for_values_and_a_test_answers_with_them(answers: dict[str, Any], *, as_task: bool) -> None:
    served = tool(task="optional")(order._function) if as_task else order
    assert run(served, answers=answers, as_task=as_task or None, lose_responses=True).text == f"{TEXT}True"
    assert run(served, answers={**answers, "sure": DECLINE}, as_task=as_task or None).text == f"{TEXT}False"


def test_a_plain_function_reads_the_value_from_its_answers() -> None:
    @tool(asks={"size": Size})
    def plain(ctx: PlainContext) -> str | InputRequired:
        """Ask."""
        try:
            size = ctx.answers.get("size")
        except Declined:
            return "declined"
        return InputRequired(size=Elicit("Which size?", Size)) if size is None else repr(size)

    assert run(plain, answers={"size": Size.LARGE}).text == "<Size.LARGE: 2>"
    assert run(plain, answers={"size": DECLINE}).text == "declined"


def test_a_test_answers_with_a_dataclass() -> None:
    @tool
    async def go(ctx: Context) -> str:
        """Ask."""
        return repr(await ctx.elicit("where", "Where?", Place))

    assert run(go, answers={"where": Place("Ulm", Size.LARGE)}).text == repr(Place("Ulm", Size.LARGE))


class Snack(typing.TypedDict):
    name: str


@pytest.mark.parametrize("kind", [Snack, Annotated[Snack, Field(description="A snack.")]])
def test_a_typed_dict_of_any_python_is_a_form(kind: Any) -> None:
    form = form_of(kind)
    assert form.schema["properties"] == {"name": {"type": "string"}}
    assert form.read({"name": "nuts"}) == {"name": "nuts"}


def test_a_dataclass_with_a_description_is_a_form() -> None:
    assert form_of(Annotated[Place, Field(description="Where?")]).schema == form_of(Place).schema


MAYBE: Any = int | None


@pytest.mark.parametrize("kind", [TypeAliasType("MaybeInt", MAYBE), NewType("MaybeNew", MAYBE)])
def test_an_optional_type_with_a_name_may_be_left_out(kind: Any) -> None:
    form = form_of(kind)
    assert "required" not in form.schema
    assert form.read({}) is None


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Annotated[int, Field(gt=0.5)], "int: "),
        (list["Missing"], "a name in it is not defined; write the type itself, without quotes"),  # type: ignore[name-defined] # noqa: F821
    ],
)
def test_a_type_that_pydantic_cannot_build_is_an_authors_error(kind: Any, message: str) -> None:
    with pytest.raises(AuthoringError) as caught:
        form_of(kind)
    assert message in str(caught.value)


def test_an_infinite_default_is_not_shown() -> None:
    @dataclass
    class Limit:
        most: float = float("inf")

    assert form_of(Limit).schema["properties"] == {"most": {"type": "number"}}
