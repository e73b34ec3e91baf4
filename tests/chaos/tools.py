"""Tools for tests of faults. They record their work in files, which outlive every process."""

from __future__ import annotations

from gateway import Context, content, tool
from tests.workers.tools import Name, note, opened


async def do(part: int) -> str:
    note("steps", str(part))
    return f"part {part}"


@tool(task="required")
async def work(ctx: Context, parts: int = 3, gate: str = "") -> str:
    """Write a step, a segment, progress and a checkpoint for each part; the last one waits for the worker's gate."""
    note("started", ctx.replica_id)
    for part in range(ctx.resumed(0), parts):
        if gate and part == parts - 1:
            note("at the gate", ctx.replica_id)
            await opened(f"{gate} {ctx.replica_id}")
        await ctx.emit(content.text(await ctx.step(f"part {part}", do, part)))
        ctx.progress(part + 1, parts)
        await ctx.checkpoint(part + 1)
    return f"done by {ctx.replica_id}"


@tool(task="required")
async def ask(ctx: Context) -> str:
    """Ask for a name after a stored step."""
    note("legs", ctx.replica_id)
    part = await ctx.step("part", do, 0)
    given = await ctx.elicit("name", "Who are you?", Name)
    note("answered", given.name)
    return f"{part} for {given.name}"


@tool
async def hello(ctx: Context) -> str:
    """Ask for a name in a call without the store."""
    given = await ctx.elicit("name", "Who are you?", Name)
    return f"Hello {given.name}"


@tool
async def wait_here(ctx: Context, gate: str) -> str:
    """Wait for a gate in a call without the store."""
    note("holding", ctx.replica_id)
    await opened(gate)
    return f"held by {ctx.replica_id}"


@tool(task="required")
async def named(name: str) -> None:
    """Note a name."""
    note("named", name)


@tool(single_use=True)
async def charge(ctx: Context) -> str:
    """Ask who pays, and charge them."""
    name = (await ctx.elicit("name", "Who pays?", Name)).name
    note("charged", name)
    return f"{name} paid"


@tool(task="required", start="call", single_use=True)
async def charge_later(ctx: Context) -> str:
    """Ask who pays, and charge them in the background."""
    name = (await ctx.elicit("name", "Who pays?", Name)).name
    await ctx.detach()
    note("charged", name)
    return f"{name} paid"


@tool(task="required", max_attempts=3)
async def count(ctx: Context, name: str, count: int) -> None:
    """Count in segments."""
    for number in range(1, count + 1):
        await ctx.emit(f"{name}: {number}")
