"""The benchmark's tools for our server: the same two that `bench/peers/` offer."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel

from gateway import Context, tool


class Name(BaseModel):
    """What the user is asked for."""

    name: str


@tool
async def echo(text: str) -> str:
    """Say the text again."""
    return text


@tool
async def ask(ctx: Context) -> str:
    """Greet the user by name."""
    answer = await ctx.elicit("name", "What is your name?", Name)
    return f"Hello, {answer.name}!"


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
    """Occupy a place until the client goes away."""
    await asyncio.Event().wait()
