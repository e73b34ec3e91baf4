"""An author who calls the context as other libraries do, or forgets `await`, reads how to write it."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import pytest
from fastapi import Request
from pydantic import BaseModel

from gateway import Context, Elicit, InputRequired, PlainContext, content, lifespan, tool
from gateway.engine.asking import SAME_KEYS
from gateway.errors import AuthoringError, GatewayError
from gateway.testing import run
from tests.asgi import Client, make_app
from tests.integration.raw import tool_call


class Stay(BaseModel):
    nights: int


STAY = Elicit("How long?", Stay)
ANSWER: Mapping[str, Any] = {"nights": 2}


def asked(ctx: Any) -> Any:
    return ctx.elicit("stay", "How long?", Stay)


@tool
async def keeps_a_coroutine(ctx: Context) -> str:
    """Forget an await."""
    stay: Any = ctx.elicit("stay", "How long?", Stay)
    return str(stay.nights)


@tool
async def reads_at_once(ctx: Context) -> str:
    """Forget an await in the middle of an expression."""
    return str(asked(ctx).nights)


@tool
async def indexes(ctx: Context) -> str:
    """Forget an await before an index."""
    stay: Any = ctx.step("get", dict)
    return str(stay["nights"])


@tool
async def adds(ctx: Context) -> str:
    """Forget an await before a sum."""
    return str(1 + asked(ctx))


FORGOTTEN: Mapping[Any, str] = {
    keeps_a_coroutine: "ctx.elicit('stay', …)",
    reads_at_once: "ctx.elicit('stay', …)",
    indexes: "ctx.step('get', …)",
    adds: "ctx.elicit('stay', …)",
}


@pytest.mark.parametrize("given", FORGOTTEN, ids=lambda given: given.name)
def test_a_forgotten_await_is_named_whatever_python_says_of_it(given: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(AuthoringError) as caught:
            run(given, answers={"stay": ANSWER})
    assert str(caught.value) == f"{FORGOTTEN[given]} was never awaited; write `await` before the call"
    assert "coroutine" in str(caught.value.__cause__), "the author can still see what Python said"


def calls(ask: Callable[[Any], Any]) -> Any:
    @tool
    async def calling(ctx: Context) -> str:
        """Call the context."""
        return str(await ask(ctx))

    return calling


@pytest.mark.parametrize(
    ("ask", "problem"),
    [
        (lambda ctx: ctx.elicit("Name?", response_type=str), "key, message, schema=…, default=…"),
        (
            lambda ctx: ctx.sample("Write a poem"),
            "key, messages, max_tokens, system_prompt=…, tools=…, options=…, default=…",
        ),
        (lambda ctx: ctx.roots(), "key, default=…"),
        (lambda ctx: ctx.checkpoint(), "value, type=…"),
    ],
    ids=["elicit", "sample", "roots", "checkpoint"],
)
def test_a_wrong_call_shows_the_parameters(ask: Callable[[Any], Any], problem: str) -> None:
    with pytest.raises(AuthoringError) as caught:
        run(calls(ask))
    assert str(caught.value).startswith("ctx.")
    assert str(caught.value).endswith(f"; its parameters are {problem}")


def test_a_wrong_call_in_a_plain_function_shows_the_parameters() -> None:
    @tool
    def counting(ctx: PlainContext) -> str:
        """Count."""
        ctx.progress()  # type: ignore[call-arg]
        return ""

    with pytest.raises(
        AuthoringError, match=r"^ctx.progress\(\) missing .*; its parameters are done, total=…, message=…$"
    ):
        run(counting)


@pytest.mark.parametrize(
    "call",
    [lambda ctx: ctx.progress(1, 2), lambda ctx: ctx.log("info", 1), lambda ctx: ctx.changed("tools")],
    ids=["progress", "log", "changed"],
)
def test_an_await_too_many_is_explained(call: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError) as caught:
        run(calls(call))
    assert caught.value.__notes__ == ["ctx.log, ctx.progress and ctx.changed do not wait: call them without `await`"]


class Elsewhere:
    """A context of another library."""

    def log(self, level: str) -> str:
        return level

    def invoke(self, command: str) -> str:
        return command


Elsewhere.log.__qualname__, Elsewhere.invoke.__qualname__ = "Context.log", "Context.invoke"


@pytest.mark.parametrize("call", [lambda other: other.invoke(), lambda other: other.log()], ids=["invoke", "log"])
def test_an_error_about_the_context_of_another_library_stays_as_it_is(call: Callable[[Any], Any]) -> None:
    @tool
    async def using() -> str:
        """Use another library."""
        return str(call(Elsewhere()))

    with pytest.raises(TypeError, match=r"^Context\.\w+\(\) missing 1 required positional argument: '\w+'$"):
        run(using)


def test_an_error_of_the_authors_own_code_stays_as_it_is() -> None:
    @tool
    async def wrong(ctx: Context) -> str:
        """Make an ordinary mistake."""
        await ctx.elicit("stay", "How long?", Stay)
        return str("" + 1)  # type: ignore[operator]

    with pytest.raises(TypeError, match="can only concatenate"):
        run(wrong, answers={"stay": ANSWER})


@pytest.mark.parametrize("name", ["action", "data"])
def test_an_answer_read_as_in_other_libraries_is_explained(name: str) -> None:
    @tool
    async def reading(ctx: Context) -> str:
        """Read an answer as a result."""
        return str(getattr(await ctx.elicit("stay", "How long?", Stay), name))

    with pytest.raises(AttributeError) as caught:
        run(reading, answers={"stay": ANSWER})
    assert caught.value.__notes__ == [
        "an answer is the value itself; a user who says no raises gateway.Declined, or use `default`"
    ]


def test_a_key_in_a_loop_is_advised() -> None:
    @tool
    async def looping(ctx: Context) -> str:
        """Ask twice under one key."""
        for _ in range(2):
            await asked(ctx)
        return ""

    with pytest.raises(AuthoringError, match=r'such as f"stay-\{i\}" in a loop$'):
        run(looping, answers={"stay": ANSWER})


@pytest.mark.parametrize(
    "make",
    [
        lambda: content.image("text", "image/png"),  # type: ignore[arg-type]
        lambda: content.audio([1], "audio/wav"),  # type: ignore[arg-type]
        lambda: content.resource_blob("a://b", "text"),  # type: ignore[arg-type]
        lambda: content.text(5),  # type: ignore[arg-type]
    ],
    ids=["image", "audio", "resource_blob", "text"],
)
def test_a_block_of_the_wrong_kind_names_its_maker(make: Callable[[], Any], request: pytest.FixtureRequest) -> None:
    with pytest.raises(AuthoringError, match=rf"^content.{request.node.callspec.id} takes "):
        make()


async def returns() -> int:
    return 1


def generates() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize("function", [returns, generates, int])
def test_a_lifespan_that_yields_nothing_is_refused_when_it_is_decorated(function: Any) -> None:
    with pytest.raises(AuthoringError, match="needs an `async def` that yields the shared value once"):
        lifespan(function)


async def test_a_lifespan_may_be_made_by_a_plain_function_if_it_yields() -> None:
    async def values() -> AsyncIterator[int]:
        yield 5

    def plain() -> AsyncIterator[int]:
        return values()

    async with lifespan(plain).opened() as value:
        assert value == 5
    wrong: Any = lambda: 5  # noqa: E731 - what an author may write
    with pytest.raises(AuthoringError, match="needs an `async def` that yields"):
        await lifespan(wrong).opened().__aenter__()


LEGS: list[int] = []


@tool
async def new_key(ctx: Context) -> str:
    """Ask under another key in each leg."""
    LEGS.append(1)
    await ctx.elicit(f"stay-{len(LEGS)}", "How long?", Stay)
    return "done"


@tool
async def return_style(ctx: Context) -> str | InputRequired:
    """Read an answer without asking, then ask something else."""
    if ctx.answers.get("stay", STAY) is None:
        return InputRequired({"stay": STAY})
    await ctx.elicit("more", "More?", Stay)
    return "done"


@tool
async def continues(ctx: Context) -> str:
    """Leave a question behind at a checkpoint."""
    if ctx.resumed(0) == 0:
        await asked(ctx)
        await ctx.checkpoint(1)
    await ctx.elicit("more", "More?", Stay)
    return "done"


def test_a_test_names_the_answer_that_no_question_used() -> None:
    with pytest.raises(
        GatewayError, match=r"; the answer to 'stay-\d+' was never used: a key must be the same in every leg"
    ):
        run(new_key, answers=lambda _key, _question: ANSWER)


async def leg(app: Any, name: str, **brought: Any) -> dict[str, Any]:
    return (await Client(app).post(tool_call(name, **brought))).result


async def warnings_after_two_legs(name: str, caplog: pytest.LogCaptureFixture) -> list[tuple[Any, ...]]:
    app = make_app(__name__)
    first = await leg(app, name)
    answers = {key: {"action": "accept", "content": ANSWER} for key in first["inputRequests"]}
    await leg(app, name, requestState=first["requestState"], inputResponses=answers)
    found = [vars(record) for record in caplog.records if record.msg == "answer not used"]
    return [(each["tool"], each["keys"] == list(answers), each["advice"]) for each in found]


async def test_the_log_names_the_answer_that_no_question_used(caplog: pytest.LogCaptureFixture) -> None:
    assert await warnings_after_two_legs("new_key", caplog) == [("new_key", True, SAME_KEYS)]


@pytest.mark.parametrize("name", ["return_style", "continues"])
async def test_answers_that_were_used_or_left_behind_are_not_named(name: str, caplog: pytest.LogCaptureFixture) -> None:
    assert await warnings_after_two_legs(name, caplog) == []


def test_a_request_of_a_web_framework_leads_to_the_headers() -> None:
    with pytest.raises(
        AuthoringError,
        match=r"starlette; take `ctx: Context` instead \(from gateway import Context\), and read ctx\.headers$",
    ):

        @tool
        async def reads(request: Request) -> str:
            """Read the request."""
            return str(request.headers)
