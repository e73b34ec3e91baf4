"""More tools whose calls become tasks, in every way in which a task can end, and with progress in every shape."""

from __future__ import annotations

from typing import Any

from gateway import Context, ProtocolError, content, prompt, resource, tool
from tests.wires.draft.tools import Name, note, opened


@tool(task="optional")
async def weather(city: str) -> str:
    """Return the weather."""
    return f"Current weather in {city}:\nTemperature: 72°F\nConditions: Partly cloudy"


@tool(task="optional")
async def ask_then_wait(ctx: Context, gate: str) -> str:
    """Ask for a name, then wait for a gate."""
    who = await ctx.elicit("name", "Who are you?", Name)
    await opened(gate)
    return who.name


@tool(task="optional")
async def refuse(ctx: Context) -> str:
    """End in a JSON-RPC error."""
    await ctx.step("secret", lambda: "hunter2")
    raise ProtocolError(-32000, "Tool execution failed: API rate limit exceeded")


@tool(task="optional")
async def err() -> Any:
    """Return a result that calls itself an error."""
    return content.error("There is no such city")


@tool(task="optional")
async def climb(ctx: Context, gate: str, told: list[list[Any]]) -> str:
    """Report progress step by step, each at a separate gate, and see it stored; then wait for the gate."""
    note(f"started-{gate}", ctx.replica_id)
    for number, (done, total, message) in enumerate(told):
        await opened(f"{gate}-{number}")
        ctx.progress(done, total, message)
        await ctx.step(f"step {number}", lambda: None)
        note(f"told-{gate}-{number}", ctx.replica_id)
    await opened(gate)
    return "arrived"


@tool(task="optional", start="call")
async def climb_first(ctx: Context, gate: str) -> str:
    """Report progress as a call, then as a task."""
    ctx.progress(1, 3, "as a call")
    await ctx.detach()
    await opened(gate)
    ctx.progress(2, 3, "as a task")
    return "arrived"


@tool(task="optional")
async def write(ctx: Context, gate: str) -> str:
    """Emit two blocks, then wait for a gate."""
    await ctx.emit("one")
    await ctx.emit("two")
    await opened(gate)
    return "three"


@tool(task="optional", scopes=["weather"])
async def guarded(ctx: Context) -> str:
    """Ask for a name, for some callers."""
    return (await ctx.elicit("name", "Who are you?", Name)).name


@tool
async def plain() -> str:
    """Never be a task."""
    return "plain"


@prompt("plain")
async def plain_prompt() -> str:
    """Ask for something plain."""
    return "plain"


@resource("plain://page")
async def plain_page() -> str:
    """Show something plain."""
    return "plain"


@tool(task="optional", start="call")
async def answer_at_once(ctx: Context, call: str, wrong: str = "") -> Any:
    """Could become a task, but ends before: with a text, or with what goes wrong."""
    note(call, ctx.replica_id)
    await ctx.emit("one")
    if wrong == "protocol error":
        raise ProtocolError(-32000, "There is no such city")
    return content.error("There is no such city") if wrong else "two"
