"""The benchmark's tools for our server; peers offer the ones that they are compared in."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel

from gateway import Context, tool


class Name(BaseModel):
    """The form for a user's name."""

    name: str


NAME_SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
"""The same as a JSON Schema."""


@tool
async def echo(text: str) -> str:
    """Say the text again."""
    return text


@tool
async def ask(ctx: Context) -> str:
    """Greet the user by name."""
    answer = await ctx.elicit("name", "What is your name?", Name)
    return f"Hello, {answer.name}!"


@tool
async def ask_by_schema(ctx: Context) -> str:
    """Greet the user by name; a JSON Schema describes the form."""
    answer = await ctx.elicit("name", "What is your name?", NAME_SCHEMA)
    return f"Hello, {answer['name']}!"


@tool(task="optional")
async def repeat(text: str) -> str:
    """Say the text again."""
    return text


@tool(task="optional")
async def wait(ctx: Context) -> str:
    """Greet the user by name, as a task that waits for it."""
    answer = await ctx.elicit("name", "What is your name?", Name)
    return f"Hello, {answer.name}!"


@tool
async def hold() -> None:
    """Occupy a place until the client hangs up."""
    await asyncio.Event().wait()


@tool
async def greet(ctx: Context, count: int) -> str:
    """Greet so many users by name, one question after the other."""
    names = [(await ctx.elicit(f"name-{number}", "What is your name?", Name)).name for number in range(count)]
    return f"Hello, {', '.join(names)}!"


@tool
async def carry(ctx: Context, size: int) -> str:
    """Greet the user by name, with so many bytes of a result in the state meanwhile."""
    luggage: str = await ctx.step("luggage", pack, size)
    answer = await ctx.elicit("name", "What is your name?", Name)
    return f"Hello, {answer.name}, with {len(luggage)} bytes!"


async def pack(size: int) -> str:
    """Make text that does not shrink."""
    return "x" * size


@tool
async def tell(ctx: Context, count: int) -> str:
    """Tell how far it is, so many times, then the result."""
    for done in range(count):
        ctx.progress(done + 1, count)
    return "done"
