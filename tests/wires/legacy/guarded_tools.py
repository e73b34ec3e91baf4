"""A tool that asks and takes a scope."""

from __future__ import annotations

from pydantic import BaseModel

from gateway import Context, tool


class Name(BaseModel):
    """A name."""

    name: str


@tool(scopes=["admin"])
async def ask_guarded(ctx: Context) -> str:
    """Ask for a name."""
    return (await ctx.elicit("name", "Who?", Name)).name
