"""An answer that does not fit its question is asked for again with the reason, a few times."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, create_model, field_validator, model_validator
from pydantic_core import PydanticCustomError

from gateway import Context, Elicit, InputRequired, PlainContext, tool
from gateway.authoring.forms.misfit_texts import MAX_COMPARED_CHARACTERS, MAX_REASON_CHARACTERS
from gateway.authoring.forms.reading import form_of
from gateway.authoring.served import Served
from gateway.engine.journal import Journal
from gateway.engine.questions import InvalidAnswer, Question
from gateway.errors import CannotContinue
from gateway.testing import run


class Even(BaseModel):
    size: int

    @field_validator("size")
    @classmethod
    def even(cls, size: int) -> int:
        if size % 2:
            raise ValueError("the size must be even")
        return size


@tool(task="optional", start="call")
async def sized(ctx: Context) -> str:
    """Ask for a size."""
    return f"Size {(await ctx.elicit('size', 'Which size?', Even)).size}"


def messages_of(served: Served, *given: Any, **options: Any) -> list[str]:
    """Return the messages of the questions, and then the text or the error of the result."""
    messages = []
    answers = iter(given)

    def answer(_key: str, question: Question) -> Any:
        messages.append(question.params["message"])
        return next(answers)

    try:
        messages.append(run(served, answers=answer, **options).text)
    except CannotContinue as error:
        messages.append(str(error))
    return messages


REFUSED = "Which size?\n\nThe last answer was not accepted. size: "
ODD = "Value error, the size must be even"


@pytest.mark.parametrize("as_task", [None, True])
@pytest.mark.parametrize(
    ("last", "end"), [(4, "Size 4"), (5, f"The client's answers to 'size' do not match what was asked. size: {ODD}")]
)
def test_a_question_is_asked_again_with_the_reason_until_the_call_ends(
    as_task: bool | None, last: int, end: str
) -> None:
    assert messages_of(sized, {"size": 3}, {"size": "x"}, {"size": last}, as_task=as_task) == [
        "Which size?",
        REFUSED + ODD,
        REFUSED + "Input should be a valid integer",
        end,
    ]


def test_each_question_has_its_own_number_of_answers() -> None:
    @tool
    async def two(ctx: Context) -> str:
        first = await ctx.elicit("first", "First?", Even)
        second = await ctx.elicit("second", "Second?", {"type": "object", "properties": {"n": {"type": "integer"}}})
        return f"{first.size} {second['n']}"

    said = messages_of(two, {"size": 1}, {"size": 1}, {"size": 2}, {"n": "x"}, {"n": "x"}, {"n": 2})
    assert said[3:5] == ["Second?", "Second?\n\nThe last answer was not accepted. n: 'x' is not of type 'integer'"]
    assert said[-1] == "2 2"


def test_the_return_style_has_the_same_rule() -> None:
    ask = Elicit("Which size?", Even)

    @tool
    def plain(ctx: PlainContext) -> Any:
        given = ctx.answers.get("size", ask)
        return InputRequired({"size": ask}) if given is None else f"Size {given.size}"

    assert messages_of(plain, {"size": 3}, {"size": 2}) == ["Which size?", REFUSED + ODD, "Size 2"]
    assert messages_of(plain, *[{"size": 3}] * 3)[-1].endswith(ODD)


def test_a_reason_stays_short() -> None:
    wide = create_model("Wide", **{f"field_{n}": (int, ...) for n in range(11)})  # type: ignore[call-overload]
    long = create_model("Long", **{"x" * 600: (int, ...)})  # type: ignore[call-overload]

    @tool
    async def asks(ctx: Context) -> None:
        await ctx.elicit("wide", "?", wide)

    @tool
    async def asks_long(ctx: Context) -> None:
        await ctx.elicit("long", "?", long)

    @tool
    async def asks_by_schema(ctx: Context) -> None:
        await ctx.elicit("n", "?", {"type": "object", "properties": {"n": {"type": "integer"}}})

    assert len(messages_of(asks_by_schema, *[{"n": "x" * 10_000}] * 3)[1]) < 600
    assert messages_of(asks, {}, {}, {})[1].endswith("not accepted. It is wrong in 11 places.")
    assert len(messages_of(asks_long, {}, {}, {})[1]) < 600


class Account(BaseModel, extra="forbid"):
    number: str
    kind: Literal["main", "other"] = "main"
    since: date | None = None

    @field_validator("number")
    @classmethod
    def known(cls, number: str) -> str:
        raise ValueError(f"there is no account {number.upper()}")


SECRET = "de12-secret"


@pytest.mark.parametrize(
    ("given", "quoted", "unquoted"),
    [
        ({"number": SECRET}, "number: Value error, there is no account DE12-SECRET", "number: Value not accepted"),
        ({"number": "1", SECRET: 2}, f"{SECRET}: Extra inputs are not permitted", "Extra inputs are not permitted"),
        ({"number": 5}, "number: Input should be a valid string", "number: Input should be a valid string"),
        (
            {"number": 5, "kind": SECRET},
            "kind: Input should be 'main' or 'other'",
            "number: Input should be a valid string; kind: Input should be one of the choices",
        ),
        (
            {"number": 5, "since": SECRET},
            "since: Input should be a valid date in the format YYYY-MM-DD, invalid character in year",
            "number: Input should be a valid string; since: Input should be a valid date in the format YYYY-MM-DD",
        ),
        ({"number": 5, "a\x1b[2J\nb": 2}, "a\\x1b[2J b: Extra", "Extra inputs are not permitted"),
    ],
)
def test_only_the_user_sees_their_answer_quoted(given: Any, quoted: str, unquoted: str) -> None:
    @tool
    async def asks(ctx: Context) -> None:
        await ctx.elicit("account", "Which account?", Account)

    said = messages_of(asks, *[given] * 3)
    assert quoted in said[1]
    assert said[-1].startswith("The client's answers to 'account' do not match what was asked. ")
    assert said[-1].endswith(unquoted)
    assert SECRET.casefold() not in said[-1].casefold()


def refusing(kind: Any, reason: Callable[[Any], str]) -> Any:
    """Return the type with a validator that refuses every value."""

    def refuse(value: Any) -> Any:
        raise ValueError(reason(value))

    return Annotated[kind, AfterValidator(refuse)]


def unquoted(kind: Any, content: dict[str, Any]) -> str:
    """Return the reason for those who are not the user."""
    with pytest.raises(InvalidAnswer) as caught:
        form_of(kind).read(content)
    return caught.value.unquoted


class Level(Enum):
    LOW = "1"
    HIGH = "2"


@pytest.mark.parametrize(
    ("kind", "reason", "value"),
    [
        (str, lambda name: f"user_{name} not found", "alice"),
        (str, lambda address: f"no account of {address.partition('@')[0]}", "alice@example.com"),
        (str, lambda name: f"{' '.join(name.split())} is unknown", "Ada   Lovelace"),
        (str, str.swapcase, "Straße"),
        (int, lambda number: f"{number} is too big", 1000.0),
        (float, lambda number: f"{number:.0f} is too big", 1e22),
        (float, lambda number: f"{number} is too big", 1000),
        (bool, lambda sure: f"{sure} is wrong", True),
        (datetime, lambda moment: f"{moment:%d %B %Y} is too late", "2020-01-02T03:04:05Z"),
        (Level, lambda level: f"{level.name} is too much", "1"),
        (list[Level], lambda levels: f"{levels[0].name} is too much", ["1"]),
    ],
)
def test_a_validators_message_that_may_tell_the_answer_is_only_for_the_user(
    kind: Any, reason: Callable[[Any], str], value: Any
) -> None:
    assert unquoted(refusing(kind, reason), {"value": value}) == "Value not accepted"


def test_a_validators_message_that_tells_nothing_is_for_everyone() -> None:
    assert unquoted(refusing(int, lambda _: "must be even, 2 to 10"), {"value": 3}).endswith("must be even, 2 to 10")
    assert unquoted(refusing(str, lambda _: "not a zip code"), {"value": "x1-y2"}).endswith("not a zip code")


def test_a_validators_message_that_cannot_be_compared_is_only_for_the_user() -> None:
    even = refusing(str, lambda _: "must be even")
    assert unquoted(even, {"value": "x" * (MAX_COMPARED_CHARACTERS - 1)}).endswith("must be even")
    assert unquoted(even, {"value": "x" * (MAX_COMPARED_CHARACTERS + 1)}) == "Value not accepted"
    assert unquoted(refusing(str, lambda _: "é" * (MAX_REASON_CHARACTERS + 1)), {"value": "x"}) == "Value not accepted"


def test_the_name_of_an_error_type_does_not_make_its_message_pydantics() -> None:
    def refuse(name: str) -> str:
        raise PydanticCustomError("missing", "{name} is missing", {"name": name})

    assert unquoted(Annotated[str, AfterValidator(refuse)], {"value": SECRET}) == "Value not accepted"


def test_what_a_validator_of_the_whole_form_says_may_tell_choices_and_unknown_names() -> None:
    class Order(BaseModel, extra="allow"):
        level: Level

        @model_validator(mode="after")
        def refuse(self) -> Order:
            raise ValueError(f"the level is {self.level.name}")

    class Named(BaseModel, extra="allow"):
        size: int

        @model_validator(mode="after")
        def refuse(self) -> Named:
            raise ValueError(f"the size has {', '.join(self.model_extra or ['no'])}")

    assert unquoted(Order, {"level": "2"}) == "Value not accepted"
    assert unquoted(Named, {"size": 1, SECRET: None}) == "Value not accepted"
    assert unquoted(Named, {"size": 1}) == "Value error, the size has no"


def test_explaining_a_large_answer_costs_little() -> None:
    class Content(dict[str, Any]):
        times_read = 0

        def values(self) -> Any:
            self.times_read += 1
            return super().values()

    kind = refusing(str, lambda _: "must be even")
    wide = create_model("Wide", **{f"field_{n}": (kind, ...) for n in range(10)})  # type: ignore[call-overload]
    unknown = Content({f"unknown {number}": f"text {number}" for number in range(30_000)})
    assert unquoted(wide, unknown).startswith("field_0: Field required")
    assert unknown.times_read == 0
    answered = Content({**unknown, **{f"field_{n}": "x" for n in range(10)}})
    assert unquoted(wide, answered).startswith("field_0: Value not accepted")
    assert answered.times_read == 1


def test_choices_are_the_users_data_too() -> None:
    @tool
    async def asks(ctx: Context) -> None:
        await ctx.elicit("to", "To whom?", ["ada@example.com", "eve@example.com"])

    said = messages_of(asks, *[{"value": SECRET}] * 3)
    assert "Input should be 'ada@example.com' or" in said[1]
    assert said[-1].endswith("'to' do not match what was asked. Input should be one of the choices")


FORM = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "size": {"enum": ["small", "large"]}, "text": {"pattern": "^a"}},
    "additionalProperties": {"type": "integer"},
}


@pytest.mark.parametrize(
    ("given", "unquoted"),
    [
        ({"n": SECRET}, "n: the value is not of type 'integer'"),
        ({"size": SECRET}, "size: the value is not one of the choices"),
        ({"text": SECRET}, "text: the value does not match '^a'"),
        ({SECRET: "x"}, "[…]: the value is not of type 'integer'"),
    ],
)
def test_only_the_user_sees_an_answer_to_a_schema_quoted(given: Any, unquoted: str) -> None:
    @tool
    async def asks(ctx: Context) -> None:
        await ctx.elicit("form", "Which?", FORM)

    said = messages_of(asks, *[given] * 3)
    assert SECRET in said[1]
    assert said[-1] == f"The client's answers to 'form' do not match what was asked. {unquoted}"


def test_what_another_kind_of_question_got_is_reported_at_the_end() -> None:
    @tool
    async def samples(ctx: Context) -> None:
        await ctx.sample("text", "Write.", max_tokens=5)

    with pytest.raises(CannotContinue, match=r"answers to 'text' do not match what was asked\. role: Field required"):
        run(samples, answers={"text": [{"result": {}}] * 3})


def test_the_number_of_wrong_answers_travels_with_the_call() -> None:
    journal = Journal.begin(now_ms=0, flow_max_ms=1, random_bytes=bytes)
    assert "refused" not in journal.to_map()
    journal.refused["size"] = 2
    assert Journal.from_map(journal.to_map()).refused == {"size": 2}
