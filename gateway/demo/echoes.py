"""A task that asks while it runs; nothing waits with it, no process and no connection."""

from __future__ import annotations

from pydantic import BaseModel

from gateway import Context, tool


class EchoInput(BaseModel):
    input: str


@tool(task="required", asks={"echo_input": EchoInput})
async def echo(ctx: Context) -> str:
    """Echo what you tell it; asks for it as a task in the background."""
    given = await ctx.elicit("echo_input", "Please provide the input string to echo back", EchoInput)
    return f"Echo: {given.input}"
