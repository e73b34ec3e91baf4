"""Questions: what they return, with and without a default."""

import enum
from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated, Any, Literal, assert_type

from pydantic import BaseModel, Field

from gateway import (
    Completion,
    Context,
    Declined,
    Elicit,
    ElicitUrl,
    InputRequired,
    LogLevel,
    PlainContext,
    Root,
    Roots,
    Sample,
    tool,
)


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Place:
    city: str


Fruit = Literal["apple", "pear"]
ADDRESS: dict[str, Any] = {"type": "object", "properties": {"street": {"type": "string"}}}


class Age(BaseModel):
    age: int


class Size(BaseModel):
    size: Literal["small", "large"]


@tool
async def form(ctx: Context) -> int:
    """Ask for a model."""
    sure = await ctx.elicit("sure", "How old?", Age)
    assert_type(sure, Age)
    perhaps = await ctx.elicit("perhaps", "How old?", Age, default=None)
    assert_type(perhaps, Age | None)
    wrong = perhaps.age  # E: union-attr reportOptionalMemberAccess
    word = await ctx.elicit("word", "How old?", Age, default="unknown")
    assert_type(word, Age | str)
    sure.agee  # E: attr-defined reportAttributeAccessIssue
    await ctx.elicit("few", "How old?")  # E: call-overload reportCallIssue
    await ctx.elicit("form", "How old?", Age, fallback=None)  # E: call-overload reportCallIssue
    return sure.age + wrong


@tool
async def without_a_model(ctx: Context) -> str:
    """Ask for a value of one field."""
    level: LogLevel = "notice"
    ctx.log(level, "asking")
    assert_type(await ctx.elicit("str", "?", str), str)
    assert_type(await ctx.elicit("int", "?", int, default=None), int | None)
    assert_type(await ctx.elicit("bool", "?", bool), bool)
    assert_type(await ctx.elicit("date", "?", date), date)
    assert_type(await ctx.elicit("datetime", "?", datetime, default="later"), datetime | str)
    assert_type(await ctx.elicit("enum", "?", Colour), Colour)
    assert_type(await ctx.elicit("literal", "?", Literal["a", "b"]), Literal["a", "b"])
    assert_type(await ctx.elicit("alias", "?", Fruit, default=None), Literal["apple", "pear"] | None)
    assert_type(await ctx.elicit("annotated", "?", Annotated[int, Field(ge=1)]), int)
    assert_type(await ctx.elicit("optional", "?", int | None), int | None)
    assert_type(await ctx.elicit("literals", "?", list[Fruit]), list[Fruit])
    assert_type(await ctx.elicit("enums", "?", list[Colour], default=()), list[Colour] | tuple[()])
    assert_type(await ctx.elicit("choice", "?", ["a", "b"]), str)
    assert_type(await ctx.elicit("choices", "?", [["a", "b"]], default=None), list[str] | None)
    assert_type(await ctx.elicit("titled", "?", [("a", "A"), ("b", "B")]), str)
    assert_type(await ctx.elicit("dataclass", "?", Place), Place)
    names = ["a", "b"]
    assert_type(await ctx.elicit("names", "?", names, default=None), str | None)
    await ctx.elicit("text", "?", "text")  # E: call-overload reportCallIssue
    await ctx.elicit("number", "?", 5)  # E: call-overload reportCallIssue
    await ctx.elicit("mixed", "?", ["a", 1])  # E: arg-type reportCallIssue
    return await ctx.elicit("age", "?", int)  # E: arg-type reportReturnType


@tool
async def schema(ctx: Context) -> None:
    """Ask with a JSON Schema."""
    assert_type(await ctx.elicit("sure", "Where?", ADDRESS), dict[str, Any])
    perhaps = await ctx.elicit("perhaps", "Where?", ADDRESS, default=None)
    assert_type(perhaps, dict[str, Any] | None)
    perhaps["street"]  # E: index reportOptionalSubscript


@tool
async def page(ctx: Context) -> str:
    """Send the user to a page."""
    assert_type(await ctx.elicit_url("sure", "Go", "https://a.example"), Literal["accept"])
    went = await ctx.elicit_url("perhaps", "Go", "https://a.example", default=None)
    assert_type(went, Literal["accept"] | None)
    went == "accepted"  # E: comparison-overlap reportUnnecessaryComparison
    return went  # E: return-value reportReturnType


@tool
async def others(ctx: Context) -> str:
    """Ask the client."""
    assert_type(await ctx.sample("sure", "Hello", max_tokens=9), Completion)
    completion = await ctx.sample("perhaps", "Hello", max_tokens=9, default=None)
    assert_type(completion, Completion | None)
    assert_type(await ctx.roots("roots"), list[Root])
    assert_type(await ctx.roots("other", default=None), list[Root] | None)
    await ctx.sample("few", "Hello")  # E: call-overload reportCallIssue
    return completion.text  # E: union-attr reportOptionalMemberAccess


@tool
async def several(ctx: Context) -> int:
    """Ask several questions at once."""
    ages = await ctx.ask(mine=Elicit("?", Age), yours=Elicit("?", Age))
    assert_type(ages, dict[str, Age])
    ages["mine"].agee  # E: attr-defined reportAttributeAccessIssue
    perhaps = await ctx.ask(mine=Elicit("?", Age, default=None))
    assert_type(perhaps, dict[str, Age | None])
    perhaps["mine"].age  # E: union-attr reportOptionalMemberAccess
    same = await ctx.ask(mine=Elicit("?", Age, None), yours=Elicit("?", Age, None))
    assert_type(same, dict[str, Age | None])
    assert_type(await ctx.ask(mine=Elicit("?", str)), dict[str, str])
    assert_type(await ctx.ask(mine=Elicit("?", str), yours=Elicit("?", str)), dict[str, str])
    assert_type(await ctx.ask(mine=Elicit("?", ["a", "b"])), dict[str, str])
    assert_type(await ctx.ask(mine=Elicit("?", ["a", "b"], default=0)), dict[str, str | int])
    assert_type(await ctx.ask(mine=Elicit("?", [["a", "b"]])), dict[str, list[str]])
    assert_type(await ctx.ask(mine=Elicit("?", Fruit)), dict[str, Fruit])
    assert_type(await ctx.ask(mine=Elicit("?", Colour, None)), dict[str, Colour | None])
    assert_type(await ctx.ask(**{key: Elicit("?", Age) for key in "ab"}), dict[str, Age])
    assert_type(await ctx.ask(**{key: Elicit("?", Age, None) for key in "ab"}), dict[str, Age | None])
    question = Elicit("?", Age)
    assert_type(await ctx.ask(first=question, second=question), dict[str, Age])
    questions: dict[str, Elicit[Age]] = {"a": question}
    assert_type(await ctx.ask(**questions), dict[str, Age])
    assert_type(await ctx.ask(page=ElicitUrl("?", "https://a.example")), dict[str, Literal["accept"]])
    assert_type(await ctx.ask(roots=Roots()), dict[str, list[Root]])
    assert_type(await ctx.ask(roots=Roots(None)), dict[str, list[Root] | None])
    assert_type(await ctx.ask(said=Sample("?", 1)), dict[str, Completion])
    assert_type(await ctx.ask(said=Sample("?", 1, default="")), dict[str, Completion | str])
    schemas = await ctx.ask(mine=Elicit("?", ADDRESS), yours=Elicit("?", ADDRESS))
    schemas["mine"]["street"]
    mixed = await ctx.ask(age=Elicit("?", Age), size=Elicit("?", Size), roots=Roots(), said=Sample("?", 1))
    assert_type(mixed, dict[str, Any])
    await ctx.ask(age=Age)  # E: call-overload reportArgumentType
    age: Age = mixed["age"]
    return age.age


@tool
async def declared(ctx: Context) -> None:
    """Declare questions."""
    assert_type(Elicit("?", Age), Elicit[Age])
    assert_type(Elicit("?", Age, None), Elicit[Age, None])
    assert_type(Elicit("?", ADDRESS), Elicit[dict[str, Any]])
    assert_type(Elicit("?", ADDRESS, default=None), Elicit[dict[str, Any], None])
    assert_type(Elicit("?", str), Elicit[str])
    assert_type(Elicit("?", Fruit, default=None), Elicit[Fruit, None])
    assert_type(Elicit("?", Annotated[int, Field(ge=1)]), Elicit[int])
    assert_type(Elicit("?", list[Colour]), Elicit[list[Colour]])
    assert_type(Elicit("?", ["a", "b"]), Elicit[str])
    assert_type(Elicit("?", [["a", "b"]]), Elicit[list[str]])
    assert_type(Elicit("?", [("a", "A")], default=0), Elicit[str, int])
    _age: Elicit[Age] = Elicit("?", ADDRESS)  # E: assignment reportAssignmentType
    _number: Elicit[int] = Elicit("?", str)  # E: arg-type reportAssignmentType
    _sure: Elicit[Age] = Elicit("?", Age, None)  # E: arg-type reportAssignmentType
    assert_type(ElicitUrl("?", "https://a.example", default=False), ElicitUrl[bool])
    assert_type(Sample("?", 1, default=None), Sample[None])
    assert_type(Roots(default=()), Roots[tuple[()]])
    _bare: list[Elicit[Age] | ElicitUrl | Sample | Roots] = [Elicit("?", Age), Roots()]


@tool
def returned(ctx: PlainContext) -> str | InputRequired:
    """Return questions instead of awaiting them."""
    question = Elicit("How old?", Age)
    answer = ctx.answers.get("age", question)
    assert_type(answer, Age | None)
    answer.age  # E: union-attr reportOptionalMemberAccess
    assert_type(ctx.answers.get("age", question, 0), Age | int)
    assert_type(ctx.answers.get("name", Elicit("?", str)), str | None)
    assert_type(ctx.answers.get("name", Elicit("?", ["a", "b"]), 0), str | int)
    assert_type(ctx.answers.get("fruit", Elicit("?", Fruit)), Fruit | None)
    assert_type(ctx.answers.get("page", ElicitUrl("?", "https://a.example")), Literal["accept"] | None)
    assert_type(ctx.answers.get("age", Elicit("?", Age, default="no")), Age | str | None)
    if answer is None:
        return InputRequired(age=question)
    try:
        return str(answer.age)
    except Declined as declined:
        return declined.key
