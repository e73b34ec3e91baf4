"""A tool and a resource that need a token with the right scopes."""

from __future__ import annotations

from pydantic import BaseModel

from gateway import Context, tool


class Topic(BaseModel):
    """Which note to read."""

    topic: str


@tool(scopes=["notes:read"])
async def read_note(ctx: Context) -> str:
    """Read a note, once the user has said which."""
    answer = await ctx.elicit("topic", "Which note?", Topic)
    principal = ctx.principal
    return f"{answer.topic} of {principal.subject if principal else 'nobody'}"


@tool(scopes=["notes:write"])
async def write_note() -> str:
    """Write a note."""
    return "written"
