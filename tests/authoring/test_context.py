"""The call as its author sees it."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from gateway import (
    Completion,
    Context,
    Declined,
    Dismissed,
    Elicit,
    ElicitUrl,
    InputRequired,
    PlainContext,
    Principal,
    Root,
    Roots,
    Sample,
    tool,
)
from gateway.authoring.context import AWAITED
from gateway.errors import AuthoringError, MissingCapability
from gateway.testing import DECLINE, DISMISS, REFUSE, run_async


class Login(BaseModel):
    name: str


async def test_a_form_gives_a_model_or_a_dict() -> None:
    @tool
    async def t(ctx: Context) -> str:
        by_model = await ctx.elicit("a", "Who?", Login)
        by_schema = await ctx.elicit("b", "Who?", {"type": "object", "properties": {"name": {"type": "string"}}})
        return f"{by_model.name}{by_schema['name']}"

    done = await run_async(t, answers={"a": {"name": "x"}, "b": {"name": "y"}})
    assert (done.value, done.asked, done.legs) == ("xy", ["a", "b"], 3)


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("javascript:alert(1)", "write one, such as https://"),
        ("file:///etc/passwd", "write one, such as https://"),
        ("login", "write one, such as https://"),
        ("", "write one, such as https://"),
        ("https://", "has no valid host"),
        ("https://me@a.example/", "remove it"),
        ("https://a.example/ä", "percent-encode"),
        (None, "write one, such as https://"),
    ],
)
async def test_a_page_that_no_user_can_be_sent_to_is_a_mistake_however_it_is_asked(url: Any, advice: str) -> None:
    @tool
    async def method(ctx: Context) -> str:
        with contextlib.suppress(Exception):  # which must not hide it
            await ctx.elicit_url("go", "Sign in", url)
        return "went on"

    @tool
    async def several(ctx: Context) -> str:
        return str(await ctx.ask(go=ElicitUrl("Sign in", url), form=Elicit("Who?", Login)))

    @tool
    async def returned() -> str | InputRequired:
        return InputRequired(go=ElicitUrl("Sign in", url))

    for function in (method, several, returned):
        with pytest.raises(AuthoringError, match=f"the question 'go' has a url that .*{advice}"):
            await run_async(function, answers={"go": {}, "form": {"name": "x"}})


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"tools": [{"name": "t"}]}, "use the parameter `tools`"),
        ({"toolChoice": {"mode": "required"}}, "add `tools`"),
        ({"messages": []}, "use the parameter `messages`"),
        ({"maxTokens": 10**9}, "use the parameter `max_tokens`"),
        ({"systemPrompt": "x"}, "use the parameter `system_prompt`"),
        ({"temperature": 0.5, "task": {"ttl": 1}}, "use a task of your own"),
    ],
)
async def test_options_of_sampling_cannot_have_what_a_parameter_has(options: dict[str, Any], advice: str) -> None:
    @tool
    async def t(ctx: Context) -> str:
        return (await ctx.sample("s", "Hi", max_tokens=9, options=options)).text

    with pytest.raises(AuthoringError, match=f"the question 's' has .* in its options.*{advice}"):
        await run_async(t, answers={"s": "Paris"})


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        ({"options": {"includeContext": "thisServer"}}, ["sampling.context"]),
        ({"options": {"includeContext": "allServers"}, "tools": []}, ["sampling.tools", "sampling.context"]),
        ({"options": {"toolChoice": {"mode": "auto"}}, "tools": []}, ["sampling.tools"]),
        ({"options": {"includeContext": "none", "temperature": 0.5}}, ["sampling"]),
    ],
)
async def test_sampling_needs_a_client_that_declares_what_its_options_ask_for(
    options: dict[str, Any], needed: list[str]
) -> None:
    @tool
    async def t(ctx: Context) -> str:
        said: str = (await ctx.sample("s", "Hi", max_tokens=9, **options)).text
        return said

    done = await run_async(t, answers={"s": "Paris"}, can=lambda name: name in needed)
    assert done.value == "Paris"
    for missing in needed:
        rest = set(needed) - {missing}
        with pytest.raises(MissingCapability, match=rf"supports {missing}, which"):
            await run_async(t, can=rest.__contains__)


@pytest.mark.parametrize("kind", ["tool_use", "tool_result"])
async def test_sampling_with_what_a_tool_did_needs_a_client_that_knows_tools(kind: str) -> None:
    @tool
    async def t(ctx: Context) -> str:
        messages = [{"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": kind}]}]
        return (await ctx.sample("s", messages, max_tokens=9)).text

    assert (await run_async(t, answers={"s": "Paris"})).value == "Paris"
    with pytest.raises(MissingCapability, match=r"supports sampling\.tools, which"):
        await run_async(t, can=lambda name: name == "sampling")


async def test_every_kind_of_question_has_a_method() -> None:
    @tool
    async def t(ctx: Context) -> list[Any]:
        await ctx.elicit_url("url", "Go", "https://a.example")
        said = await ctx.sample("sample", "Capital of France?", max_tokens=9, system_prompt="Be brief")
        roots = await ctx.roots("roots")
        return [said.text, [root.uri for root in roots]]

    answers = {"url": {}, "sample": "Paris", "roots": ["file:///a"]}
    assert (await run_async(t, answers=answers)).value == ["Paris", ["file:///a"]]


async def test_defaults_stand_for_declined_questions_of_every_kind() -> None:
    @tool
    async def t(ctx: Context) -> list[Any]:
        return [
            await ctx.elicit("form", "?", Login, default=None),
            await ctx.sample("sample", "?", max_tokens=1, default=None),
            await ctx.roots("roots", default=[]),
        ]

    refused = {"error": {"code": -1, "message": "no"}}
    done = await run_async(t, answers={"form": DECLINE, "sample": refused, "roots": refused})
    assert done.value == [None, None, []]


async def test_a_page_reports_whether_the_user_agreed_to_go_there() -> None:
    @tool
    async def t(ctx: Context) -> list[str | None]:
        sure = await ctx.elicit_url("sure", "Go", "https://a.example")
        return [sure, await ctx.elicit_url("perhaps", "Go", "https://b.example", default=None)]

    assert (await run_async(t, answers={"sure": {}, "perhaps": {}})).value == ["accept", "accept"]
    for no in (DECLINE, DISMISS, REFUSE):
        assert (await run_async(t, answers={"sure": {}, "perhaps": no})).value == ["accept", None]
    with pytest.raises(Declined):
        await run_async(t, answers={"sure": DECLINE})
    with pytest.raises(Dismissed):
        await run_async(t, answers={"sure": DISMISS})


async def test_several_questions_are_asked_in_one_leg() -> None:
    @tool
    async def t(ctx: Context) -> list[str]:
        got = await ctx.ask(
            form=Elicit("?", Login), url=ElicitUrl("?", "https://a"), sample=Sample("?", 1), roots=Roots()
        )
        return [type(value).__name__ for value in got.values()]

    done = await run_async(t, answers={"form": {"name": "x"}, "url": {}, "sample": "s", "roots": []})
    assert (done.value, done.legs) == (["Login", "str", "Completion", "list"], 2)
    assert done.asked == ["form", "url", "sample", "roots"]


async def test_keys_of_ask_need_not_be_identifiers() -> None:
    keys = ["two words", "a.b", "self", "questions", "größe", "1"]

    @tool
    async def t(ctx: Context) -> list[str]:
        return list(await ctx.ask(**{key: Elicit("?", Login) for key in keys}))

    assert (await run_async(t, answers=lambda _key, _question: {"name": "x"})).value == keys


async def test_asking_nothing_is_answered_at_once() -> None:
    @tool
    async def t(ctx: Context) -> Any:
        return await ctx.ask()

    assert (await run_async(t)).value == {}


async def test_a_step_a_checkpoint_and_chance_are_those_of_the_call() -> None:
    seen: list[Any] = []

    @tool
    async def t(ctx: Context) -> int:
        resumed = ctx.resumed(0)
        made = await ctx.step("add", lambda a, b: a + b, 1, 2)
        seen.append((ctx.call_id, ctx.now(), ctx.uuid("u"), ctx.random("r"), ctx.step_id("add")))
        await ctx.checkpoint(resumed + 1)
        await ctx.elicit("k", "?", Login)
        return int(made) + resumed

    done = await run_async(t, answers={"k": {"name": "x"}})
    assert done.value == 3 + 1
    assert seen[0] == seen[1]
    began = seen[0][1]
    assert began.tzinfo is UTC
    assert abs(datetime.now(UTC) - began) < timedelta(minutes=1)
    assert seen[0][4] == f"{seen[0][0]}:add"


async def join(*parts: str, key: str, function: str = "") -> str:
    return "/".join([*parts, key, function])


def join_in_thread(*parts: str, key: str, function: str = "") -> str:
    assert threading.current_thread() is not threading.main_thread()
    return "/".join([*parts, key, function])


@pytest.mark.parametrize("function", [join, join_in_thread])
async def test_a_step_passes_keyword_arguments_even_those_with_the_names_of_its_own(
    function: Callable[..., Any],
) -> None:
    @tool
    async def t(ctx: Context) -> list[str]:
        joined = [
            await ctx.step("a", function, "x", "y", key="k", function="f"),
            await ctx.step("b", function, key="k"),
        ]
        await ctx.elicit("go", "?", Login)
        return joined

    done = await run_async(t, answers={"go": {"name": "x"}})
    assert (done.value, done.legs) == (["x/y/k/f", "k/"], 2)


async def test_a_replayed_step_keeps_its_result_whatever_its_arguments_are_now() -> None:
    ran: list[str] = []

    def record(text: str, *, suffix: str) -> str:
        ran.append(text + suffix)
        return text + suffix

    @tool
    async def t(ctx: Context) -> str:
        leg = str(len(ran))
        recorded = await ctx.step("record", record, leg, suffix=leg)
        await ctx.elicit("go", "?", Login)
        return recorded

    done = await run_async(t, answers={"go": {"name": "x"}})
    assert (done.value, done.legs, ran) == ("00", 2, ["00"])


async def test_who_calls_and_where_it_runs() -> None:
    caller = Principal("https://issuer.example", "alice", "client-1")

    done: list[Any] = []

    @tool
    async def u(ctx: Context) -> None:
        done.append((ctx.principal, ctx.replica_id))

    await run_async(u, principal=caller)
    await run_async(u)
    assert done == [(caller, "test"), (None, "test")]


async def test_what_the_client_declared() -> None:
    names = ["elicitation.form", "elicitation.url", "sampling", "sampling.tools", "roots", "extensions.a.b/c"]

    @tool
    async def t(ctx: Context) -> list[bool]:
        return [ctx.can(name) for name in names]

    @tool
    async def asks(ctx: Context) -> None:
        await ctx.roots("r")

    @tool
    async def misspells(ctx: Context) -> bool:
        return ctx.can("elicitation.forms")

    with pytest.raises(AuthoringError, match=r"unknown capability 'elicitation\.forms'; use one of"):
        await run_async(misspells)

    assert (await run_async(t)).value == [True] * len(names)
    assert (await run_async(t, can=lambda name: name == "sampling")).value == [name == "sampling" for name in names]
    with pytest.raises(MissingCapability):
        await run_async(asks, can=lambda _name: False)


async def test_progress_logs_and_changes_are_sent() -> None:
    @tool
    async def t(ctx: Context) -> None:
        ctx.progress(1, 2, "half")
        ctx.log("warning", {"a": 1}, "mine")
        ctx.changed("tools")

    done = await run_async(t)
    assert (done.progress, done.logs, done.changed) == ([(1, 2, "half")], [("warning", {"a": 1})], ["tools"])

    @tool
    async def wrong(ctx: Context) -> None:
        ctx.log("loud", "x")  # type: ignore[arg-type]

    with pytest.raises(AuthoringError, match="unknown log level 'loud'; use one of: debug, info"):
        await run_async(wrong)


# Return style


async def test_a_function_may_return_what_it_needs() -> None:
    @tool(asks={"declared": Login})
    async def t(ctx: Context) -> Any:
        declared = ctx.answers.get("declared")
        if declared is None:
            return InputRequired(declared=Elicit("Who?", Login))
        return declared.name

    done = await run_async(t, answers={"declared": {"name": "x"}})
    assert (done.value, done.legs) == ("x", 2)


async def test_a_plain_function_runs_in_a_thread_with_the_plain_context() -> None:
    @tool
    def t(ctx: PlainContext, n: int) -> Any:
        assert type(ctx) is PlainContext
        login = ctx.answers.get("k", Elicit("?", Login), default="nobody")
        if isinstance(login, str):
            assert login == "nobody"
            return InputRequired({"k": Elicit("Who?", Login)})
        return f"{login.name} {n}"

    assert (await run_async(t, {"n": 5}, answers={"k": {"name": "x"}})).value == "x 5"
    with pytest.raises(Declined):
        await run_async(t, {"n": 5}, answers={"k": DECLINE})


async def test_looking_for_an_answer_to_no_question_is_an_authors_error() -> None:
    @tool
    async def t(ctx: Context) -> Any:
        return ctx.answers.get("nothing")

    with pytest.raises(AuthoringError, match="no question is declared under 'nothing'"):
        await run_async(t)


@pytest.mark.parametrize("name", sorted(AWAITED))
async def test_a_plain_function_cannot_await(name: str) -> None:
    @tool
    def t(ctx: PlainContext) -> None:
        getattr(ctx, name)

    with pytest.raises(AuthoringError, match=rf"ctx\.{name} must be awaited; define the function with `async def`"):
        await run_async(t)


async def test_what_the_context_does_not_have_is_an_attribute_error() -> None:
    @tool
    def t(ctx: PlainContext) -> None:
        _ = ctx.nonsense  # type: ignore[attr-defined,unused-ignore]

    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        await run_async(t)


def test_all_that_is_public_says_what_it_does() -> None:
    for kind in (PlainContext, Context, Completion, Root):
        for name, member in vars(kind).items():
            if not name.startswith("_") and (callable(member) or isinstance(member, property)):
                assert inspect.getdoc(member), f"{kind.__name__}.{name}"


# Questions in a step


async def test_a_step_cannot_ask() -> None:
    effects: list[str] = []

    @tool
    async def t(ctx: Context) -> Any:
        async def charge() -> str:
            effects.append("charged")
            return (await ctx.elicit("who", "Who pays?", Login)).name

        try:
            return await ctx.step("charge", charge)
        except AuthoringError:
            return await ctx.step("again", lambda: ctx.ask(other=Elicit("Who?", Login)))

    with pytest.raises(AuthoringError, match=r"step 'charge' asks 'who', .*; ask before the step, and pass the answer"):
        await run_async(t, answers={"who": {"name": "x"}, "other": {"name": "x"}})
    assert effects == ["charged"]


async def test_a_plain_step_cannot_ask_either() -> None:
    @tool
    async def t(ctx: Context) -> Any:
        return await ctx.step("charge", lambda: ctx.ask(who=Elicit("Who?", Login)))

    with pytest.raises(AuthoringError, match="step 'charge' asks 'who'"):
        await run_async(t)


async def test_questions_beside_and_after_a_step_are_fine() -> None:
    async def slow() -> int:
        for _ in range(3):
            await asyncio.sleep(0)
        return 1

    @tool
    async def t(ctx: Context) -> Any:
        number, who = await asyncio.gather(ctx.step("slow", slow), ctx.elicit("who", "Who?", Login))
        with pytest.raises(ZeroDivisionError):
            await ctx.step("fails", lambda: 1 // 0)
        again = await ctx.elicit("again", "Again?", Login)
        return f"{number} {who.name} {again.name}"

    done = await run_async(t, answers={"who": {"name": "x"}, "again": {"name": "y"}})
    assert (done.value, done.asked) == ("1 x y", ["who", "again"])


async def test_a_step_may_run_another_call() -> None:
    @tool
    async def inner(ctx: Context) -> str:
        return (await ctx.elicit("who", "Who?", Login)).name

    @tool
    async def t(ctx: Context) -> Any:
        async def nested() -> Any:
            return (await run_async(inner, answers={"who": {"name": "x"}})).value

        return await ctx.step("nested", nested)

    assert (await run_async(t)).value == "x"
