"""Questions: what they return, with and without a default."""

from typing import Any, Literal, assert_type

from pydantic import BaseModel

from gateway import (
    Completion,
    Context,
    Declined,
    Elicit,
    ElicitUrl,
    InputRequired,
    PlainContext,
    Root,
    Roots,
    Sample,
    tool,
)

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
    assert_type(ctx.answers.get("age", Elicit("?", Age, default="no")), Age | str | None)
    if answer is None:
        return InputRequired(age=question)
    try:
        return str(answer.age)
    except Declined as declined:
        return declined.key
