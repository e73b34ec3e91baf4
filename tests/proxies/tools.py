"""Tools that record each run in a file, and wait for files that a test creates."""

from __future__ import annotations

import random
import string
from typing import Annotated

from pydantic import BaseModel, Field

from gateway import Context, tool
from tests.workers.tools import note, opened


class Answer(BaseModel):
    value: str


def letters(size: int) -> str:
    """Return letters that hardly compress, the same each time."""
    return "".join(random.Random(size).choices(string.ascii_letters + string.digits, k=size))


@tool
async def tell(ctx: Context, gate: str) -> str:
    """Report the first half, wait for a gate, and report the second half."""
    ctx.progress(1, 2)
    await opened(gate)
    ctx.progress(2, 2)
    return "told"


@tool
async def hold(ctx: Context, name: str, gate: str) -> str:
    """Record where this runs, and wait for a gate in silence."""
    note("runs", f"{name} {ctx.replica_id}")
    await opened(gate)
    return f"held by {ctx.replica_id}"


@tool
async def run(ctx: Context, name: str) -> str:
    """Record where this runs."""
    note("runs", f"{name} {ctx.replica_id}")
    return f"run {name}"


@tool
async def ask_twice(ctx: Context, name: str, kept: int = 0) -> str:
    """Ask two questions, with `kept` bytes to carry in between; record the run when both are answered."""
    carried = await ctx.step("carried", letters, kept)
    first = await ctx.elicit("first", "The first?", Answer)
    second = await ctx.elicit("second", "The second?", Answer)
    note("runs", f"{name} {ctx.replica_id}")
    return f"{first.value}, {second.value}, {len(carried)}"


@tool
async def give(size: int) -> str:
    """Return `size` bytes."""
    return letters(size)


@tool
async def count_in_header(text: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Text"})]) -> str:
    """Count the characters of an argument that travels in a header."""
    return str(len(text))


@tool
async def count(text: str) -> str:
    """Count the characters of an argument."""
    return str(len(text))
