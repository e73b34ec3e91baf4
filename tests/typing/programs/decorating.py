"""Decorators keep the signature of the function."""

from collections.abc import AsyncIterator
from typing import Any, assert_type

from gateway import (
    Context,
    InputRequired,
    PlainContext,
    ToolResult,
    complete,
    content,
    lifespan,
    prompt,
    resource,
    server,
    tool,
)
from gateway.authoring.prompts import Prompt
from gateway.authoring.tools import Tool

server(name="shop", title="The shop", icons=[{"src": "https://shop.example.com/icon.png"}])
server(name=1)  # E: arg-type reportArgumentType
server("shop")  # E: call-arg reportCallIssue


@lifespan
async def numbers() -> AsyncIterator[list[int]]:
    yield [1]


@tool
async def add(a: int, b: int = 0) -> int:
    """Add."""
    return a + b + numbers.value[0]


@tool("named", version=2, task="optional")
async def named(ctx: Context, page: str) -> str | ToolResult:
    """Use options."""
    return page if await ctx.detach() else content.error("no")


@tool(name="plain")
def plain(ctx: PlainContext, page: str) -> list[str]:
    """Block."""
    return [ctx.call_id, page]


@prompt
def greeting(language: str) -> str:
    """Greet."""
    return language


@prompt(title="Farewell")
async def farewell(language: str) -> str:
    """Say goodbye."""
    return language


@resource("docs://{page}", mime_type="text/plain")
async def document(page: str) -> str:
    """Read."""
    return page


@complete(greeting, "language")
def languages(typed: str) -> list[str]:
    return [typed]


@complete(document, "page")
async def pages(typed: str, arguments: dict[str, str]) -> list[str]:
    return [typed, *arguments]


async def called(ctx: Context) -> None:
    """Call decorated functions directly."""
    assert_type(await add(1, b=2), int)
    assert_type(await named(ctx, "tea"), str | ToolResult)
    assert_type(greeting("en"), str)
    assert_type(await farewell(language="en"), str)
    assert_type(await document("tea"), str)
    assert_type(languages("e"), list[str])
    assert_type(await pages("e", {}), list[str])
    await add("1")  # E: arg-type reportArgumentType
    await add()  # E: call-arg reportCallIssue
    await add(1, c=2)  # E: call-arg reportCallIssue
    await named("tea")  # E: call-arg reportCallIssue
    await plain(ctx, "tea")  # E: misc reportGeneralTypeIssues
    greeting(1)  # E: arg-type reportArgumentType
    document(pages="tea")  # E: call-arg reportCallIssue
    languages(1)  # E: arg-type reportArgumentType
    add(1) + 1  # E: operator reportOperatorIssue
    numbers.value + 1  # E: operator reportOperatorIssue


@tool(titel="Add")  # E: call-overload reportCallIssue
async def misspelt() -> None:
    """Misspell an option."""


@tool(task="always")  # E: call-overload reportArgumentType
async def no_such_choice() -> None:
    """Choose what does not exist."""


@resource("docs://x", mime="text/plain")  # E: call-arg reportCallIssue
def mime() -> str:
    """Misspell an option."""
    return ""


@resource  # E: arg-type reportArgumentType
def no_uri() -> str:
    """Forget the URI."""
    return ""


@complete(greeting, "language")  # E: type-var reportArgumentType
def lengths(typed: str) -> int:
    return len(typed)


@complete(add, "a")  # E: arg-type reportArgumentType
def for_a_tool(typed: str) -> list[str]:
    return [typed]


def count(tools: list[Tool], prompts: list[Prompt[..., Any]]) -> int:
    """Take tools of any signature."""
    return len(tools) + len(prompts)


assert_type(count([add, named], [greeting]), int)


@tool
async def style() -> str | InputRequired:
    """Return a question."""
    return "done"
