"""A task that asks a question while it runs. No process or connection waits for the answer."""

from __future__ import annotations

from pydantic import BaseModel

from gateway import Context, tool


class EchoInput(BaseModel):
    input: str


@tool(task="required", asks={"echo_input": EchoInput})
async def echo(ctx: Context) -> str:
    """Echo your input. Runs as a background task that asks for the input."""
    given = await ctx.elicit("echo_input", "Please provide the input string to echo back", EchoInput)
    return f"Echo: {given.input}"
