"""A tool is tested without a server, by the same engine and with the journal packed as it travels."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
import types
from collections import UserDict
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from gateway import Context, Declined, Dismissed, Elicit, Refused, lifespan, prompt, resource, testing, tool
from gateway.authoring.arguments import InvalidArguments
from gateway.authoring.lifespans import Lifespan
from gateway.engine.outcomes import LegTimedOut
from gateway.engine.questions import Question
from gateway.errors import AuthoringError, GatewayError
from gateway.testing import DECLINE, DISMISS, REFUSE, Run, run, run_async


class Login(BaseModel):
    name: Annotated[str, Field(alias="userName")]


class Result(BaseModel):
    result: str


@tool
async def greet(ctx: Context, greeting: str = "Hello") -> str:
    login = await ctx.elicit("login", "Who are you?", Login)
    return f"{greeting} {login.name}"


def test_a_call_is_run_to_its_end() -> None:
    done = run(greet, {"greeting": "Hi"}, answers={"login": {"userName": "octocat"}})
    assert done == Run(
        value="Hi octocat",
        result={"content": [{"type": "text", "text": "Hi octocat"}], "isError": False},
        asked=["login"],
        unanswered={},
        legs=2,
    )
    assert done.text == "Hi octocat"


@pytest.mark.parametrize(
    "answer",
    [
        {"userName": "octocat"},
        Login.model_validate({"userName": "octocat"}),
        {"result": {"action": "accept", "content": {"userName": "octocat"}}},
        types.MappingProxyType({"userName": "octocat"}),
        UserDict(result=UserDict(action="accept", content=UserDict(userName="octocat"))),
    ],
    ids=["content", "model", "whole result", "another mapping", "other mappings"],
)
def test_an_answer_may_be_given_as_content_as_a_model_or_whole(answer: Any) -> None:
    assert run(greet, answers={"login": answer}).value == "Hello octocat"


def test_answers_may_be_worked_out_from_the_question() -> None:
    def answer(key: str, question: Question) -> Any:
        assert key == "login"
        assert question.params["message"] == "Who are you?"
        return {"userName": "octocat"}

    assert run(greet, answers=answer).value == "Hello octocat"


def test_a_field_called_result_is_content_and_no_whole_answer() -> None:
    @tool
    async def t(ctx: Context) -> str:
        return (await ctx.elicit("k", "?", Result)).result

    assert run(t, answers={"k": {"result": "Fixed"}}).value == "Fixed"


@pytest.mark.parametrize(("answer", "kind"), [(DECLINE, Declined), (DISMISS, Dismissed), (REFUSE, Refused)])
def test_the_user_or_the_client_may_say_no(answer: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        run(greet, answers={"login": answer})


def test_a_call_without_its_answers_ends_at_the_question() -> None:
    done = run(greet)
    assert (done.legs, done.asked, list(done.unanswered), done.result) == (1, ["login"], ["login"], {})

    @tool
    async def two(ctx: Context) -> None:
        await ctx.ask(a=Elicit("?", Result), b=Elicit("?", Result))

    assert list(run(two, answers={"a": {"result": "x"}}).unanswered) == ["b"]


def test_what_the_tool_raises_is_raised() -> None:
    @tool
    async def t() -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine") as caught:
        run(t)
    assert caught.value.__context__ is None


def test_wrong_arguments_are_reported_as_to_a_client() -> None:
    with pytest.raises(InvalidArguments, match="greeting"):
        run(greet, {"greeting": 5})


def test_an_undeclared_question_is_an_error_in_tests() -> None:
    @tool(asks={})
    async def t(ctx: Context) -> None:
        await ctx.elicit("login", "?", Login)

    with pytest.raises(AuthoringError, match="not declared in"):
        run(t)


def test_a_result_no_client_could_read_is_an_error() -> None:
    @tool
    async def t() -> Any:
        return object()

    with pytest.raises(AuthoringError, match="the result: object"):
        run(t)


def test_a_tool_that_never_stops_asking_is_stopped() -> None:
    numbers = itertools.count()

    @tool
    async def t(ctx: Context) -> None:
        await ctx.elicit(f"login-{next(numbers)}", "Who?", Login)

    with pytest.raises(
        GatewayError, match=r"still asks questions after 100 legs; the last ones: login-97, login-98, lo"
    ):
        run(t, answers=lambda _key, _question: {"userName": 5})


def test_each_leg_has_a_time_limit() -> None:
    @tool
    async def t() -> None:
        await asyncio.Event().wait()

    with pytest.raises(LegTimedOut):
        run(t, limit_seconds=0.01)


def test_a_tool_may_have_a_time_limit_of_its_own_within_that_of_each_leg() -> None:
    @tool(leg_seconds=0.01, task="optional", start="call")
    async def t(ctx: Context, *, becomes_task: bool = False) -> str:
        if becomes_task and await ctx.detach():
            await asyncio.sleep(0.05)
            return "done"
        await asyncio.Event().wait()
        return ""

    for limit in (None, 60):
        with pytest.raises(LegTimedOut) as caught:
            run(t, as_task=False, limit_seconds=limit)
        assert caught.value.seconds == 0.01
    with pytest.raises(LegTimedOut) as caught:
        run(t, as_task=False, limit_seconds=0.001)
    assert caught.value.seconds == 0.001
    assert run(t, {"becomes_task": True}).value == "done", "no client waits for a leg of a task"


def test_steps_run_once_and_travel_as_they_would() -> None:
    ran: list[int] = []

    def compute() -> Any:
        ran.append(1)
        return {"n": 2**70, "t": (1,)}

    @tool
    async def t(ctx: Context) -> Any:
        big = await ctx.step("s", compute)
        await ctx.elicit("k", "?", Result)
        return big

    assert run(t, answers={"k": {"result": "x"}}).value == {"n": 2**70, "t": [1]}
    assert ran == [1]


async def test_inside_a_running_loop_run_says_what_to_write() -> None:
    with pytest.raises(GatewayError, match="run_async"):
        run(greet)
    assert (await run_async(greet, answers={"login": {"userName": "x"}})).value == "Hello x"


def test_no_thread_is_left_behind() -> None:
    seen: list[threading.Thread] = []

    @tool
    async def t(ctx: Context) -> None:
        await ctx.step("s", lambda: seen.append(threading.current_thread()))

    for _ in range(3):
        run(t)
    for thread in seen:
        thread.join(10)
        assert not thread.is_alive()


# Prompts, resources and lifespans


def test_prompts_and_resources_run_like_tools() -> None:
    @prompt
    async def ask(ctx: Context, topic: str) -> str:
        return f"{(await ctx.elicit('k', '?', Result)).result} about {topic}"

    @resource("docs://{page}/{+rest}")
    def page(page: str, rest: str) -> str:
        return f"{page}: {rest}"

    assert run(ask, {"topic": "x"}, answers={"k": {"result": "Tell"}}).text == "Tell about x"
    read = run(page, {"page": "a b", "rest": "c/d"})
    assert read.text == "a b: c/d"
    assert read.result["contents"][0]["uri"] == "docs://a%20b/c/d"


@lifespan
async def shared() -> AsyncIterator[str]:
    yield "real"


@tool
async def use() -> str:
    return shared.value


def test_the_lifespans_of_the_tools_module_are_open_unless_the_test_brings_its_own() -> None:
    assert isinstance(shared, Lifespan)
    assert run(use).value == "real"
    with shared.using("fake"):
        assert run(use).value == "fake"
    with pytest.raises(AuthoringError, match="'shared' is not open"):
        _ = shared.value


def test_a_tool_of_a_module_nobody_imported_runs_too() -> None:
    module = types.ModuleType("nowhere_to_be_found")
    exec("from gateway import tool\n@tool\nasync def t() -> str:\n    return 'x'\n", module.__dict__)
    assert module.__name__ not in sys.modules
    assert run(module.t).value == "x"


def test_sampling_may_be_answered_whole() -> None:
    @tool
    async def t(ctx: Context) -> str:
        return (await ctx.sample("s", "?", max_tokens=1)).model

    said = {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "mine"}
    assert run(t, answers={"s": said}).value == "mine"


def test_the_helper_is_public() -> None:
    assert testing.run is run
    assert set(testing.__all__) <= set(dir(testing))


# Tasks


@tool(task="optional", start="call")
async def moves(ctx: Context) -> str:
    await ctx.emit("one")
    name = (await ctx.elicit("login", "Who are you?", Result)).result
    detached = await ctx.detach()
    await ctx.emit("two")
    return f"{name} {detached}"


def test_a_call_that_detaches_continues_as_a_task() -> None:
    done = run(moves, answers={"login": {"result": "Ada"}})
    assert done.value == "Ada True"
    assert (done.became_task, done.legs) == (True, 3)
    assert [block["text"] for block in done.segments] == ["one", "two"]
    assert [block["text"] for block in done.result["content"]] == ["one", "two", "Ada True"]


def test_a_test_may_be_a_client_that_knows_no_tasks_or_begin_as_a_task() -> None:
    call = run(moves, answers={"login": {"result": "Ada"}}, as_task=False)
    assert (call.value, call.became_task, call.legs) == ("Ada False", False, 2)
    task = run(moves, answers={"login": {"result": "Ada"}}, as_task=True)
    assert (task.value, task.became_task, task.legs) == ("Ada True", True, 2)


def test_a_run_that_no_client_could_have_is_an_error() -> None:
    @tool(task="required")
    async def needs() -> None: ...

    with pytest.raises(AuthoringError, match="never becomes a task"):
        run(greet, as_task=True)
    with pytest.raises(AuthoringError, match="clients that do not support tasks cannot call it"):
        run(needs, as_task=False)


def test_a_prompt_or_resource_neither_detaches_nor_emits() -> None:
    @prompt
    async def detaches(ctx: Context) -> str:
        return str(await ctx.detach())

    @prompt
    async def emits(ctx: Context) -> str:
        await ctx.emit("x")
        return "y"

    with pytest.raises(AuthoringError, match="can detach"):
        run(detaches)
    with pytest.raises(AuthoringError, match="the prompt 'emits' emits blocks"):
        run(emits)


@pytest.mark.parametrize(("attempts", "expected"), [(3, 2), (1, 1)])
def test_a_lost_worker_repeats_a_leg_of_a_task_with_what_it_had_kept(attempts: int, expected: int) -> None:
    ran: list[str] = []

    @tool(task="required", max_attempts=attempts)
    async def t(ctx: Context) -> int:
        ran.append("leg")
        start = ctx.resumed(0)
        await ctx.step("s", ran.append, "step")
        if not start:
            await ctx.checkpoint(1)
        await ctx.emit("block")
        return int(start)

    done = run(t, lose_responses=True)
    assert (ran.count("leg"), ran.count("step"), done.legs) == (expected, 1, expected)
    assert done.value == expected - 1
    assert [block["text"] for block in done.segments] == ["block"]


def test_a_leg_after_an_answer_to_a_tool_for_single_use_is_not_repeated() -> None:
    ran: list[str] = []

    @tool(single_use=True)
    async def t(ctx: Context) -> None:
        ran.append("leg")
        await ctx.elicit("login", "?", Result)
        ran.append("paid")

    assert run(t, answers={"login": {"result": "x"}}, lose_responses=True).legs == 3
    assert ran == ["leg", "leg", "leg", "paid"]


def test_two_blocks_at_once_are_found_out_in_a_test_of_a_task() -> None:
    @tool(task="required")
    async def t(ctx: Context) -> None:
        await asyncio.gather(ctx.emit("a"), ctx.emit("b"))

    with pytest.raises(AuthoringError, match="await one before you emit the next"):
        run(t)
