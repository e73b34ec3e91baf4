"""A tool that asks, and one that does not."""

from __future__ import annotations

from pydantic import BaseModel

from gateway import Context, tool


class Name(BaseModel):
    """The answer."""

    name: str


@tool
async def ask(ctx: Context) -> str:
    """Ask for a name."""
    return (await ctx.elicit("name", "Who are you?", Name)).name


@tool
async def plain() -> str:
    """Return at once."""
    return "done"
