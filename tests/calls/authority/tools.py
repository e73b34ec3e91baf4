"""Tools, a prompt and a resource that require a scope, one for each way in which a call can wait."""

from __future__ import annotations

from gateway import Context, prompt, resource, tool
from tests.wires.draft.tools import Name, opened

SCOPES = ("admin",)


@tool(scopes=SCOPES, task="optional")
async def job(gate: str) -> str:
    """Wait for a gate, and return a secret."""
    await opened(gate)
    return "TOP-SECRET payroll"


@tool(scopes=SCOPES, task="optional")
async def write_job(ctx: Context, gate: str) -> str:
    """Emit one part at once, and a secret after a gate."""
    await ctx.emit("part")
    await opened(gate)
    return "TOP-SECRET payroll"


@tool(scopes=SCOPES, task="optional", start="task")
async def ask_job(ctx: Context) -> str:
    """Ask as a task, or as a call if tasks are not supported."""
    return f"ADMIN {(await ctx.elicit('who', 'Who are you?', Name)).name}"


@tool(scopes=SCOPES)
async def greet(ctx: Context) -> str:
    """Ask twice."""
    first = await ctx.elicit("first", "Who are you?", Name)
    second = await ctx.elicit("second", "And who is with you?", Name)
    return f"ADMIN {first.name} {second.name}"


@prompt("greeting", scopes=SCOPES)
async def greeting(ctx: Context) -> str:
    """Ask for a prompt."""
    return f"ADMIN {(await ctx.elicit('who', 'Who are you?', Name)).name}"


@resource("admin://page", scopes=SCOPES)
async def page(ctx: Context) -> str:
    """Ask for a page."""
    return f"ADMIN {(await ctx.elicit('who', 'Who are you?', Name)).name}"
