"""Tools for what 2025-11-25 clients alone can see, watched through the same files as the draft wire's tools."""

from __future__ import annotations

from gateway import Context, complete, prompt, tool
from gateway.protocol.versions import LogLevel
from tests.wires.draft.tools import Name, note, opened


@tool
async def log_at(ctx: Context, levels: list[LogLevel]) -> str:
    """Log once at each of some levels."""
    for level in levels:
        ctx.log(level, f"at {level}")
    return "logged"


@tool
async def once_then_ask(ctx: Context, call: str) -> str:
    """Do something once, emit a block, ask, and do another thing once."""
    await ctx.step("first", note, call, "first")
    await ctx.emit("emitted")
    who = await ctx.elicit("who", "Who are you?", Name)
    await ctx.step("second", note, call, f"second {who.name}")
    return who.name


@tool(single_use=True)
async def ask_once(ctx: Context) -> str:
    """Ask in a call whose state counts once."""
    return (await ctx.elicit("who", "Who are you?", Name)).name


@tool(task="required")
async def only_a_task(ctx: Context) -> str:
    """Ask in a task that is nothing else."""
    return (await ctx.elicit("who", "Who are you?", Name)).name


@tool(task="optional", start="call")
async def detach_late(ctx: Context, gate: str) -> str:
    """Wait for a gate before it would become a task."""
    await opened(gate)
    return f"detached: {await ctx.detach()}"


@tool
async def chatter_then_ask(ctx: Context, chars: int) -> str:
    """Report more progress than may wait for a slow reader, and ask."""
    for number in range(100):
        ctx.progress(number, 100, "x" * (chars // 50))
    return (await ctx.elicit("who", "x" * chars, Name)).name


@tool
async def can_ask(ctx: Context) -> str:
    """Return which questions the client can answer."""
    return ", ".join(kind for kind in ("elicitation.form", "elicitation.url", "sampling", "roots") if ctx.can(kind))


@prompt
async def completed(city: str) -> str:
    """Have an argument that can be completed."""
    return city


@complete(completed, "city")
async def cities(value: str) -> list[str]:
    """Suggest cities."""
    return [city for city in ("Paris", "Parma", "Rome") if city.startswith(value)]
