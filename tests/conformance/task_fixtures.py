"""The tools for the official conformance suite's tests of the tasks extension, written with the public API only.

Names, arguments and texts are the suite's.
"""

from __future__ import annotations

import asyncio
from typing import Final

from pydantic import BaseModel

from gateway import Context, Elicit, ProtocolError, ToolResult, content, tool

JOB_SECONDS: Final = 1.0


class Confirm(BaseModel):
    confirm: bool


class Name(BaseModel):
    name: str


@tool
async def greet(name: str) -> str:
    """Greet at once; never a task."""
    return f"Hello, {name}!"


@tool(task="optional")
async def slow_compute(seconds: float, label: str) -> str:
    """Take the requested number of seconds."""
    await asyncio.sleep(seconds)
    return f"{label}: computed for {seconds:g} seconds"


@tool(task="required")
async def failing_job() -> ToolResult:
    """Fail after a while, as a tool fails: the task is completed."""
    await asyncio.sleep(JOB_SECONDS)
    return content.error("This job intentionally fails for testing")


@tool(task="optional")
async def protocol_error_job() -> str:
    """End in a JSON-RPC error: the task has failed."""
    raise ProtocolError(-32603, "This job intentionally ends in a protocol error for testing")


@tool(task="optional")
async def confirm_delete(ctx: Context, filename: str) -> str:
    """Ask before anything is deleted."""
    answer = await ctx.elicit("confirm", f"Delete {filename}?", Confirm)
    return f"{filename} {'deleted' if answer.confirm else 'kept'}"


@tool(task="optional")
async def multi_input(ctx: Context) -> str:
    """Ask two questions at once."""
    answers = await ctx.ask(
        first=Elicit("What is the first name?", Name),
        second=Elicit("What is the second name?", Name),
    )
    return f"Hello, {answers['first'].name} and {answers['second'].name}!"


@tool(task="required", start="call")
async def test_tool_with_task(ctx: Context) -> str:
    """Ask as a call, then continue as a task."""
    user = await ctx.elicit("user_name", "What is your name?", Name)
    await ctx.detach()
    return f"Hello, {user.name}, from a task!"
