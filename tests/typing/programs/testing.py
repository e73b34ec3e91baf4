"""The testing helper."""

from datetime import UTC, datetime
from typing import assert_type

from pydantic import BaseModel

from gateway import Context, Elicit, InputRequired, PlainContext, Principal, prompt, resource, tool
from gateway.testing import (
    DECLINE,
    AsyncCall,
    Call,
    Recording,
    Run,
    crash_after,
    lose_response,
    record,
    replay,
    run,
    run_async,
)


class Age(BaseModel):
    age: int


@tool
async def birthday(ctx: Context) -> Age:
    """Add a year."""
    given = await ctx.elicit("age", "How old?", Age)
    return Age(age=given.age + 1)


@tool
def returned(ctx: PlainContext) -> str | InputRequired:
    """Ask in the return style."""
    answer = ctx.answers.get("age", Elicit("?", Age))
    return InputRequired(age=Elicit("?", Age)) if answer is None else str(answer.age)


@prompt
def greeting(language: str) -> str:
    """Greet."""
    return language


@resource("docs://{page}")
async def document(page: str) -> bytes:
    """Read."""
    return page.encode()


def test_values_are_typed() -> None:
    done = run(birthday, answers={"age": {"age": 1}})
    assert_type(done, Run[Age])
    assert_type(done.value.age, int)
    assert_type(run(returned, answers={"age": Age(age=3)}).value, str)
    assert_type(run(greeting, {"language": "en"}).value, str)
    assert_type(run(document, {"page": "tea"}).value, bytes)
    assert_type(done.asked, list[str])
    done.value.aeg  # E: attr-defined reportAttributeAccessIssue
    run(returned).value.age  # E: attr-defined reportAttributeAccessIssue


async def test_options_are_typed() -> None:
    done = await run_async(birthday, answers={"age": DECLINE}, as_task=False, limit_seconds=1)
    assert_type(done.value, Age)
    run(
        birthday,
        principal=Principal("https://issuer.example", "alice", "desk"),
        lose_responses=True,
        checkpoint=(1, {}),
    )
    run(birthday, lose_response=True)  # E: call-overload reportCallIssue
    run(birthday, as_task="yes")  # E: call-overload reportArgumentType
    run(birthday, principal="alice")  # E: call-overload reportArgumentType
    run(birthday, can=["roots"])  # E: call-overload reportArgumentType
    run(birthday, {"age"})  # E: call-overload reportArgumentType
    await run_async(birthday, answer={})  # E: call-overload reportCallIssue
    run(lambda: None)  # E: call-overload reportArgumentType


def test_faults_and_time_are_typed() -> None:
    done = run(
        birthday,
        answers={"age": [{"age": "x"}, {"age": 1}]},
        faults=[crash_after("pay", times=2), lose_response(1)],
        now=datetime(2026, 1, 31, tzinfo=UTC),
        seed=1,
        state_max_bytes=1000,
    )
    assert_type(done.steps, dict[str, int])
    assert_type(done.questions[0].message, str | None)
    done.history[0].ended == "cra"  # E: comparison-overlap reportUnnecessaryComparison
    run(birthday, faults=["crash"])  # E: list-item reportArgumentType
    run(birthday, now="2026-01-31")  # E: call-overload reportArgumentType


def test_recordings_are_typed() -> None:
    recording = record(birthday, {}, answers={"age": {"age": 1}}, seed=2)
    assert_type(recording, Recording)
    replay(birthday, Recording.load("birthday.json"))
    replay(birthday, "birthday.json")  # E: arg-type reportArgumentType
    record(birthday, answer={})  # E: call-arg reportCallIssue


def test_the_fixture_is_typed(call: Call) -> None:
    assert_type(call(birthday, answers={"age": DECLINE}).value, Age)
    assert_type(call(greeting, {"language": "en"}).value, str)
    call(birthday, answer={})  # E: call-overload reportCallIssue


async def test_the_fixture_is_typed_where_it_is_awaited(call: AsyncCall) -> None:
    assert_type((await call(birthday)).value.age, int)
    call(birthday).value  # E: attr-defined reportAttributeAccessIssue


async def older(ctx: Context) -> Run[Age]:
    return await run_async(birthday)


def bare(done: Run) -> str:
    return done.text
