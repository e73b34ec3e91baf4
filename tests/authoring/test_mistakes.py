"""A mistake of an author is an error that names the thing, the place and the fix."""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, cast

import pytest
from mcp.server.mcpserver import Context as OtherContext
from pydantic import AfterValidator, BaseModel, Field

from gateway import Context, PlainContext, content, prompt, resource, tool
from gateway.errors import AuthoringError, ConfigurationError
from gateway.registry.registry import Registry, load_registry
from gateway.testing import run

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Return what writes a file in the working directory, whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def make(name: str, source: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
        return path

    yield make
    for name in set(sys.modules) - before:
        del sys.modules[name]


def problem(*modules: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_registry(modules)
    return str(caught.value)


# What cannot be decorated


class Desk:
    async def book(self, name: str) -> str:
        return name

    @classmethod
    async def open(cls) -> str:
        return cls.__name__

    @staticmethod
    async def close() -> str:
        return "closed"


async def lines() -> AsyncIterator[str]:
    yield "one"


def rows() -> Iterator[str]:
    yield "one"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (Desk, "@tool cannot decorate the class 'Desk'; decorate a function that uses it"),
        (Desk.book, r"method 'Desk\.book' in its class; .* object: book = tool\(my_object\.book\)"),
        (vars(Desk)["open"], r"method 'Desk\.open' in its class; .* of the class: open = tool\(Desk\.open\)"),
        (vars(Desk)["close"], r"method 'Desk\.close' in its class; .* of the class: close = tool\(Desk\.close\)"),
        (lines, r"generator 'lines'; replace `yield` by one `return` of a list, or .* `await ctx\.emit\(part\)`"),
        (rows, "generator 'rows'; replace `yield`"),
    ],
)
def test_what_clients_could_not_call_is_no_tool(function: Any, message: str) -> None:
    with pytest.raises(AuthoringError, match=message):
        tool(function)


def test_prompts_and_resources_have_the_same_rules() -> None:
    with pytest.raises(AuthoringError, match="@prompt cannot decorate the class 'Desk'"):
        prompt(Desk)
    with pytest.raises(AuthoringError, match=r"@prompt cannot decorate the method 'Desk\.open'"):
        prompt(vars(Desk)["open"])
    with pytest.raises(AuthoringError, match=r"of an object: book = resource\(uri\)\(my_object\.book\)"):
        resource("docs://desk")(Desk.book)
    with pytest.raises(AuthoringError, match=r"@resource cannot decorate the generator 'rows'; .* a list$"):
        resource("docs://rows")(rows)


def test_the_method_of_an_object_is_a_tool() -> None:
    desk = tool(Desk().book)
    assert list(desk.input_schema["properties"]) == ["name"]
    assert run(desk, {"name": "x"}).text == "x"
    assert run(tool(Desk.open)).text == "Desk"
    assert run(tool(Desk.close)).text == "closed"


# The context


def plain(ctx: Context) -> None: ...
async def maybe(ctx: Context | None = None) -> None: ...
async def noted(call: Annotated[Context, "mine"]) -> None: ...
async def foreign(ctx: OtherContext) -> None: ...
async def foreign_of(ctx: OtherContext[Any] | None) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (plain, "plain: a function without `async` gets no Context; use `async def`, or annotate `ctx: PlainContext`"),
        (maybe, "maybe: annotate the context as `ctx: Context`, without anything else"),
        (noted, "noted: annotate the context as `call: Context`, without anything else"),
        (foreign, "foreign: the parameter 'ctx' takes the Context of mcp; use `from gateway import Context`"),
        (foreign_of, "foreign_of: the parameter 'ctx' takes the Context of mcp"),
    ],
)
def test_the_context_has_the_type_that_the_function_gets(function: Any, message: str) -> None:
    with pytest.raises(AuthoringError) as caught:
        tool(function)
    assert message in str(caught.value)


def test_a_function_may_ask_for_less_than_it_gets() -> None:
    @tool
    async def waits(ctx: PlainContext) -> str:
        return type(ctx).__name__

    assert run(waits).text == "Context"


# Names

TWICE = """\
from gateway import tool

@tool
async def report() -> str:
    return "first"

@tool{options}
async def {name}() -> str:
    return "second"
"""


def test_two_tools_of_one_name_in_a_module_are_refused_with_both_places(write: Write) -> None:
    write("probe_same.py", TWICE.format(options="('report')", name="other"))
    named = "two tools are named 'report', at probe_same.py:3 and at probe_same.py:7; rename one of them"
    assert problem("probe_same") == named


@pytest.mark.parametrize(("options", "name"), [("", "report"), ("('summary')", "summary")])
def test_a_tool_that_another_function_hides_is_refused_with_both_places(write: Write, options: str, name: str) -> None:
    write("probe_hidden.py", TWICE.format(options=options, name="report"))
    assert problem("probe_hidden") == (
        f"the tool '{name}' at probe_hidden.py:7 hides the tool 'report' at probe_hidden.py:3, because their functions "
        "have the same name; rename one of the functions"
    )


def test_a_tool_that_is_served_under_another_name_is_not_hidden(write: Write) -> None:
    source = TWICE.format(options="('summary')", name="report")
    write("probe_kept.py", source.replace("@tool('summary')", "first = report\n\n@tool('summary')"))
    assert list(load_registry(["probe_kept"]).tools) == ["summary", "report"]


def test_a_place_is_known_even_if_the_working_directory_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert tool(lines_of).place.startswith(f"{__file__}:")


def test_two_tools_of_one_name_in_two_modules_are_refused_with_both_places(write: Write) -> None:
    source = TWICE.partition("\n@tool{")[0]
    write("probe_one.py", source)
    write("inner/probe_two.py", "import os\n" + source)
    named = "two tools are named 'report', at probe_one.py:3 and at inner/probe_two.py:4; rename one of them"
    assert problem("probe_one", "inner/probe_two.py") == named


def test_one_function_may_be_served_under_two_names() -> None:
    twice = [tool(lines_of), tool("again")(lines_of)]
    assert list(Registry(twice).tools) == ["lines_of", "again"]
    assert [each.place for each in twice] == [twice[0].place] * 2


async def lines_of() -> str:
    return ""


def test_a_tool_name_that_some_clients_refuse_is_known() -> None:
    assert tool("a" * 64)(lines_of).has_portable_name
    assert not tool("a" * 65)(lines_of).has_portable_name
    assert not tool("a.b")(lines_of).has_portable_name


def test_a_wrong_name_says_what_is_allowed() -> None:
    with pytest.raises(
        AuthoringError, match=r"use 1 to 128 characters of A-Z a-z 0-9 _ \. -, or for every client 1 to"
    ):
        tool("a b")(lines_of)


# Modules


def test_a_module_without_tools_is_refused(write: Write) -> None:
    write("probe_empty.py", "x = 1\n")
    assert problem("probe_empty") == "'probe_empty' has no tool, prompt or resource; decorate its functions with @tool"
    assert problem("./probe_empty.py").startswith("'./probe_empty.py' has no tool")


def test_a_package_whose_tools_are_in_its_modules_is_refused_with_their_names(write: Write) -> None:
    write("probe_package/__init__.py", "")
    write("probe_package/tools.py", TWICE.partition("\n@tool{")[0])
    assert "name the modules in it that define them, such as probe_package.tools, or" in problem("probe_package")
    assert list(load_registry(["probe_package.tools"]).tools) == ["report"]


def test_a_module_of_shared_clients_needs_no_tools(write: Write) -> None:
    write("probe_shared.py", "from gateway import lifespan\n\n@lifespan\nasync def shared():\n    yield 1\n")
    assert len(load_registry(["probe_shared"]).lifespans) == 1


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1\n\ndef load():\n    raise RuntimeError('no url')\n\nload()\n", "RuntimeError: no url (probe_bad.py:4)"),
        ("import json\n\njson.loads('{')\n", "(probe_bad.py:3)"),
        ("import probe_helper\n", "LookupError: late (probe_helper.py:2)"),
        ("x = 1\ndef broken(:\n", "SyntaxError: invalid syntax (probe_bad.py:2)"),
        ("x = 1\nimport probe_not_installed\n", "which is not installed (probe_bad.py:2)"),
        ("from gateway import tool\n\n@tool(version=0)\nasync def f() -> None: ...\n", "(probe_bad.py:3)"),
        (
            "from gateway import tool\n\n@tool(nme='x')\nasync def f() -> None: ...\n",
            "did you mean 'name'? (probe_bad.py:3)",
        ),
        (
            "from gateway import resource\n\n@resource('a://b', nme='x')\nasync def f() -> None: ...\n",
            "(probe_bad.py:3)",
        ),
    ],
)
def test_an_error_while_importing_names_the_line_of_the_author(write: Write, source: str, message: str) -> None:
    write("probe_helper.py", "\nraise LookupError('late')\n")
    write("probe_bad.py", source)
    assert problem("probe_bad").endswith(message)


# Defaults


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x: int = 'seven'", "the default 'seven' of the parameter 'x' does not fit its annotation: Input should be"),
        ("x: list[int] = ['a']", "the default ['a'] of the parameter 'x' does not fit its annotation"),
        ("y: int, x: Literal['a', 'b'] = 'c'", "the default 'c' of the parameter 'x' does not fit its annotation"),
    ],
)
def test_a_default_that_does_not_fit_its_annotation_is_refused(write: Write, source: str, message: str) -> None:
    header = "from typing import Literal\nfrom gateway import tool\n"
    write("probe_default.py", f"{header}@tool\nasync def f({source}) -> None: ...\n")
    told = problem("probe_default")
    assert message in told
    assert "probe_default.py:3" in told


def picky(value: int) -> int:
    raise LookupError(value)


def test_a_default_may_stand_for_no_value() -> None:
    @tool
    async def lenient(
        text: str = cast("Any", None),
        limit: Annotated[int, Field(ge=1)] = 0,
        made: list[int] = Field(default_factory=lambda: [1]),  # noqa: B008 - how pydantic spells it
    ) -> str:
        return f"{text} {limit} {made}"

    assert run(lenient).text == "None 0 [1]"

    @tool
    async def checked(number: Annotated[int, AfterValidator(picky)] = 1) -> str:
        return str(number)

    assert run(checked).text == "1"


# What clients see in lists


@pytest.mark.parametrize(
    ("icon", "advice"),
    [
        ({"url": "https://a.example/i.png"}, "use a mapping with the URL of the icon in 'src'"),
        ({"src": "i.png"}, "use a URL that starts with https:// or http:// or data:"),
        ({"src": "https://a.example/i.png", "sizes": "48x48"}, "use a list of texts, such as ['48x48']"),
        ({"src": "https://a.example/i.png", "mimeType": 1}, "use a text"),
    ],
    ids=["without src", "not a URL", "sizes", "mimeType"],
)
def test_an_icon_that_clients_cannot_read_is_refused(icon: dict[str, Any], advice: str) -> None:
    for decorate in (tool(icons=[icon]), prompt(icons=[icon]), resource("docs://page", icons=[icon])):
        with pytest.raises(AuthoringError) as caught:
            decorate(fetch_nothing)
        assert "'fetch_nothing' has " in str(caught.value)
        assert advice in str(caught.value)
    with pytest.raises(AuthoringError, match="use a list of mappings"):
        tool(icons=cast("Any", icon))(fetch_nothing)


async def fetch_nothing() -> str:
    return ""


def test_a_wrong_icon_names_the_line_of_the_author(write: Write) -> None:
    write("probe_icon.py", "from gateway import tool\n@tool(icons=[{'url': 'x'}])\nasync def f() -> None: ...\n")
    assert "probe_icon.py:2" in problem("probe_icon")


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({"readonlyHint": True}, "has the unknown hint 'readonlyHint'; did you mean 'readOnlyHint'?"),
        ({"audience": []}, "use destructiveHint, idempotentHint, openWorldHint, readOnlyHint, title"),
        ({"readOnlyHint": "yes"}, "has readOnlyHint='yes' in its annotations; use True or False"),
        ({"title": 1}, "has title=1 in its annotations; use a text"),
        ("readOnlyHint", "has annotations='readOnlyHint'; use a mapping"),
    ],
    ids=str,
)
def test_a_hint_that_the_protocol_does_not_know_is_refused(annotations: Any, message: str) -> None:
    with pytest.raises(AuthoringError) as caught:
        tool(annotations=annotations)(fetch_nothing)
    assert message in str(caught.value)


WRONG_HINTS = [
    ("last_modified", "2026-01-31T12:00:00", "lastModified='2026-01-31T12:00:00' in its annotations; use a time with"),
    ("last_modified", "2026-01-31", "has lastModified='2026-01-31' in its annotations; use a time with its offset"),
    ("last_modified", datetime(2026, 1, 31, tzinfo=UTC), "such as '2026-01-31T12:00:00Z'"),
    ("priority", 1.5, "has priority=1.5 in its annotations; use a number from 0 to 1"),
    ("priority", True, "has priority=True in its annotations; use a number from 0 to 1"),
    ("audience", ["users"], "has audience=['users'] in its annotations; use a list of 'user' and 'assistant'"),
    ("audience", "user", "use a list of 'user' and 'assistant'"),
]


@pytest.mark.parametrize(("hint", "value", "message"), WRONG_HINTS)
def test_a_hint_about_content_that_clients_refuse_is_refused(hint: str, value: Any, message: str) -> None:
    name = "lastModified" if hint == "last_modified" else hint
    with pytest.raises(AuthoringError) as of_a_resource:
        resource("docs://a", annotations={name: value})(fetch_nothing)
    with pytest.raises(AuthoringError) as of_a_block:
        content.resource_link("docs://a", "a").annotated(**{hint: value})
    assert message in str(of_a_resource.value)
    assert message.partition("in its")[2] in str(of_a_block.value)


def test_annotations_of_a_resource_are_a_mapping() -> None:
    with pytest.raises(AuthoringError, match="has annotations='priority'; use a mapping"):
        resource("docs://a", annotations="priority")(fetch_nothing)  # type: ignore[arg-type]


class Stock(BaseModel):
    count: int


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"output_schema": Stock},
            "output_schema=Stock is not a JSON Schema; annotate the result of the tool 'fetch_nothing' with it "
            "instead, or pass Stock.model_json_schema()",
        ),
        (
            {"input_schema": Stock},
            "input_schema=Stock is not a JSON Schema; annotate the parameters of the tool 'fetch_nothing' instead, or "
            "pass Stock.model_json_schema()",
        ),
        ({"output_schema": list[int]}, "output_schema=list[int] is not a JSON Schema; annotate the result of"),
        ({"output_schema": int}, "output_schema=int is not a JSON Schema; annotate the result of"),
    ],
    ids=lambda given: next(iter(given)) if isinstance(given, dict) else "",
)
def test_a_type_is_no_schema(options: Any, message: str) -> None:
    with pytest.raises(AuthoringError) as caught:
        tool(**options)(fetch_nothing)
    assert message in str(caught.value)


# What the context is called with


def mistake_of(served: Any, **options: Any) -> str:
    """Return the error of a call, which warns of nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(AuthoringError) as caught:
            run(served, **options)
    return str(caught.value)


@tool
async def steps_a_call(ctx: Context) -> Any:
    return await ctx.step("mk", cast("Any", fetch(1)))


@tool
async def steps_a_call_with_more(ctx: Context) -> Any:
    return await ctx.step("mk", cast("Any", fetch(1)), more=2)


@tool
async def steps_a_value(ctx: Context) -> Any:
    return await ctx.step("mk", cast("Any", "text"))


@tool
async def asks_without_a_key(ctx: Context) -> Any:
    return await cast("Any", ctx).elicit("What?", str)


@pytest.mark.parametrize(
    ("served", "message"),
    [
        (steps_a_call, "step 'mk' takes the function and then its arguments: ctx.step('mk', fetch, …)"),
        (steps_a_call_with_more, "step 'mk' takes the function and then its arguments: ctx.step('mk', fetch, …)"),
        (steps_a_value, "step 'mk' takes the function and then its arguments: ctx.step('mk', function, …)"),
        (asks_without_a_key, "ctx.elicit takes a key, then the message and the schema"),
    ],
    ids=lambda given: getattr(given, "name", ""),
)
def test_a_wrong_call_of_the_context_says_how_to_call_it(served: Any, message: str) -> None:
    assert message in mistake_of(served)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("info", 'use ctx.log("info", …)'),
        ("warning", 'use ctx.log("warning", …)'),
        ("report_progress", "use ctx.progress(done, total)"),
    ],
)
def test_a_method_of_another_library_names_ours(name: str, advice: str) -> None:
    @tool
    async def logs(ctx: Context) -> None:
        getattr(ctx, name)("text")

    with pytest.raises(AttributeError, match="the context has no attribute") as caught:
        run(logs)
    assert str(caught.value).endswith(advice)


# A forgotten await


async def fetch(number: int = 1) -> str:
    return str(number)


@tool
async def returned(ctx: Context) -> Any:
    return fetch()


@tool
async def formatted(ctx: Context) -> str:
    return f"Hello {ctx.uuid}, {fetch()}"


@tool
async def of_context(ctx: Context) -> str:
    return f"{ctx.roots('roots')}"


@tool
async def in_a_dict(ctx: Context) -> Any:
    return {"name": fetch()}


@tool
async def in_a_list(ctx: Context) -> Any:
    return ["a", fetch()]


@tool
async def emitted(ctx: Context) -> None:
    await ctx.emit(fetch())


@tool
async def to_a_step(ctx: Context) -> Any:
    return await ctx.step("save", str, cast("Any", fetch()))


@tool
async def from_a_step(ctx: Context) -> Any:
    return await ctx.step("save", lambda: [fetch()])


@tool
async def saved(ctx: Context) -> None:
    await ctx.checkpoint({"last": fetch()})


@tool
def plain_function() -> Any:
    return fetch()


@pytest.mark.parametrize(
    ("served", "message"),
    [
        (returned, "the return value of the tool 'returned' is a coroutine; write `await` before the call of fetch"),
        (in_a_dict, "the tool 'in_a_dict': the result.name is a coroutine; write `await` before the call of fetch"),
        (in_a_list, "the tool 'in_a_list': the result is a coroutine; write `await` before the call of fetch"),
        (emitted, "the result is a coroutine; write `await` before the call of fetch"),
        (
            to_a_step,
            "an argument of step 'save' is a coroutine; pass the function and its arguments to the step, or write "
            "`await` before the call of fetch",
        ),
        (from_a_step, "the result of step 'save'[0] is a coroutine; write `await` before the call of fetch"),
        (saved, "the checkpoint.last is a coroutine; write `await` before the call of fetch"),
        (plain_function, "the return value of the tool 'plain_function' is a coroutine; write `await` before"),
    ],
    ids=lambda given: getattr(given, "name", ""),
)
def test_a_forgotten_await_is_an_error_that_names_the_call(served: Any, message: str) -> None:
    assert message in mistake_of(served)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize(("served", "called"), [(formatted, "fetch"), (of_context, "Context.roots")], ids=str)
def test_a_text_made_from_a_coroutine_is_an_error_too(served: Any, called: str) -> None:
    with pytest.raises(
        AuthoringError, match=f"{served} contains a coroutine; write `await` before the call of {called}"
    ):
        run(served)


@tool
async def dropped_step(ctx: Context) -> str:
    ctx.step("charge", fetch, 1)  # type: ignore[unused-coroutine]
    return "done"


@tool
async def dropped_checkpoint(ctx: Context) -> str:
    ctx.checkpoint({"page": 1})  # type: ignore[unused-coroutine]
    return "done"


@tool
async def dropped_block(ctx: Context) -> str:
    ctx.emit("a block")  # type: ignore[unused-coroutine]
    return "done"


@tool
async def dropped_question(ctx: Context) -> str:
    name: Any = ctx.elicit("name", "Your name?", str)
    return "nobody" if name is None else "done"


@tool
async def dropped_before_a_question(ctx: Context) -> str:
    ctx.step("charge", fetch, 1)  # type: ignore[unused-coroutine]
    return await ctx.elicit("name", "Your name?", str)


@tool
async def dropped_in_a_helper(ctx: Context) -> str:
    async def helper() -> None:
        ctx.step("charge", fetch, 1)  # type: ignore[unused-coroutine]

    await asyncio.gather(helper())
    return "done"


@pytest.mark.parametrize(
    ("served", "call"),
    [
        (dropped_step, "ctx.step('charge', …)"),
        (dropped_checkpoint, "ctx.checkpoint(…)"),
        (dropped_block, "ctx.emit(…)"),
        (dropped_question, "ctx.elicit('name', …)"),
        (dropped_before_a_question, "ctx.step('charge', …)"),
        (dropped_in_a_helper, "ctx.step('charge', …)"),
    ],
    ids=lambda given: getattr(given, "name", ""),
)
def test_a_call_of_the_context_without_await_is_an_error_never_a_result(served: Any, call: str) -> None:
    told = mistake_of(served, answers={"name": "Ada"} if "question" in served.name else {})
    assert told.endswith(f"{served} never awaited {call}; write `await` before the call")


@tool
async def left_running(ctx: Context) -> str:
    begun = asyncio.ensure_future(ctx.step("late", fetch))
    begun.add_done_callback(lambda done: done.cancelled() or done.exception())
    return "done"


@tool
async def together(ctx: Context) -> list[str]:
    async with asyncio.TaskGroup() as group:
        first = group.create_task(ctx.step("first", fetch, 1))
    second = await asyncio.wait_for(ctx.step("second", fetch, 2), 30)
    return [first.result(), second, *await asyncio.gather(ctx.step("third", fetch, 3), ctx.step("fourth", fetch, 4))]


@tool
async def closed(ctx: Context) -> str:
    ctx.step("never", fetch).close()
    return "done"


@tool
async def asks_first(ctx: Context) -> str:
    charging = ctx.step("charge", fetch, 1)
    name = await ctx.elicit("name", "Your name?", str)
    return name + await charging


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("served", [left_running, together, closed, asks_first], ids=lambda given: given.name)
def test_a_call_that_starts_later_or_is_closed_is_not_forgotten(served: Any) -> None:
    run(served, answers={"name": "Ada"} if served is asks_first else {})


def test_the_output_of_another_program_is_no_forgotten_await() -> None:
    @tool
    async def output() -> Any:
        return "RuntimeWarning: <coroutine object main.run at 0x7f2a5c> was never awaited"

    assert run(output).text.startswith("RuntimeWarning")

    @tool
    async def block() -> Any:
        return [content.text("<coroutine object x")]

    assert run(block).text == "<coroutine object x"
