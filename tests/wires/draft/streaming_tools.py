"""Tools whose results come in segments, at gates that a test opens, and end in every way."""

from __future__ import annotations

from typing import Any, Final, Literal

from gateway import Context, ProtocolError, content, tool
from tests.wires.draft.tools import Name, note, opened

WHY: Final = "The source ran dry"
SECRET: Final = "hunter2"


@tool(task="optional")
async def recite(
    ctx: Context,
    gate: str,
    count: int,
    stops: list[int] | None = None,
    end: Literal["", "error result", "protocol error", "bug"] = "",
) -> Any:
    """Emit segments, and note each run.

    Args:
        ctx: the call.
        gate: the first part of the names of the gates.
        count: how many segments.
        stops: which of them wait for a gate of their own; one more than there are is the end.
        end: what goes wrong after the last one.
    """
    note(gate, ctx.replica_id)
    for number in range(1, count + 1):
        if number in (stops or ()):
            await opened(f"{gate}-{number}")
        await ctx.emit(f"segment {number}")
    if count + 1 in (stops or ()):
        await opened(f"{gate}-{count + 1}")
    if end == "protocol error":
        raise ProtocolError(-32000, WHY)
    if end == "bug":
        raise RuntimeError(SECRET)
    return content.error(WHY) if end == "error result" else None


@tool
async def recite_here(ctx: Context, gate: str, count: int) -> Any:
    """Return what `recite` emits; never as a task."""
    note(gate, ctx.replica_id)
    return [f"segment {number}" for number in range(1, count + 1)]


@tool(task="optional")
async def tour(ctx: Context, city: str, gate: str = "") -> Any:
    """Describe a city: two segments, and after a gate, if there is one, a link as the last block."""
    await ctx.emit(f"Current weather in {city}:\nTemperature: 72°F\nConditions: Partly cloudy")
    await ctx.emit("Suggested activities:\n- Visit Central Park\n- Explore the Metropolitan Museum of Art")
    if gate:
        await opened(gate)
    return content.resource_link(
        "https://example.com/nyc_overview.mp4", "Here is a short video overview of New York City attractions."
    )


@tool(task="optional")
async def travel(ctx: Context, gate: str) -> None:
    """Emit two segments on each of three days, with a checkpoint after each day, a gate on it, and a question first."""
    first = ctx.resumed(1)
    note(gate, f"{ctx.replica_id} day {first}")
    who = await ctx.elicit("name", "Who are you?", Name)
    for day in range(first, 4):
        await ctx.emit(f"segment {2 * day - 1}")
        await opened(f"{gate}-{day}")
        await ctx.emit(f"segment {2 * day}")
        await ctx.checkpoint(day + 1)
    note(gate, f"{who.name} is home")


@tool(task="optional")
async def ask_between(ctx: Context) -> str:
    """Emit a segment, ask, and emit what was answered."""
    await ctx.emit("segment 1")
    who = await ctx.elicit("name", "Who are you?", Name)
    await ctx.emit(f"Hello {who.name}")
    return "segment 3"


@tool(task="optional")
async def everything(ctx: Context) -> content.ToolResult:
    """Have blocks of several types, and every field that a result can have."""
    await ctx.emit(content.image(b"pixels", "image/png"))
    await ctx.emit(content.resource_link("https://example.com/plan", "plan"))
    last = content.embedded("draft://plan", "the plan", "text/plain")
    return content.ToolResult(content=[last], structured={"rooms": 3})


@tool(task="optional")
async def pour(ctx: Context, count: int, size: int) -> None:
    """Emit large segments."""
    for _ in range(count):
        await ctx.emit("x" * size)


@tool(task="optional", max_attempts=1)
async def recite_once(ctx: Context, gate: str, count: int) -> None:
    """Emit segments, then wait for a gate; may be tried once."""
    note(gate, ctx.replica_id)
    for number in range(1, count + 1):
        await ctx.emit(f"segment {number}")
    await opened(f"{gate}-end")


@tool(task="optional", streams=True)
async def broadcast(ctx: Context, gate: str, count: int) -> str | None:
    """Note that it runs and emit segments, with a gate before each; without any, return a text after one gate."""
    note(gate, ctx.replica_id)
    await opened(f"{gate}-1")
    for number in range(1, count + 1):
        await opened(f"{gate}-{number}")
        await ctx.emit(f"segment {number}")
    return None if count else "nothing to stream"
