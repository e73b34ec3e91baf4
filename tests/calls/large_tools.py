"""Functions whose results have any size, in every form that a result can have."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel

from gateway import Context, content, prompt, resource, tool
from gateway.authoring.content import ToolResult


class Row(BaseModel):
    name: str


@tool
async def text(size: int) -> str:
    """Return text."""
    return "ä" * (size // 2)


@tool
async def image(size: int) -> Any:
    """Return bytes."""
    return content.image(b"a" * size, "image/png")


@tool
async def structured(size: int) -> dict[str, Any]:
    """Return structured content."""
    return {"rows": ["abcdefgh"] * (size // 20)}


@tool
async def numbers(size: int) -> list[int]:
    """Return a list with a type."""
    return [7] * (size // 4)


@tool
async def models(size: int) -> list[Row]:
    """Return models, whose size is known only when they are written."""
    return [Row(name="a" * 90)] * (size // 200)


@tool
async def whole(size: int) -> ToolResult:
    """Return a whole result."""
    return ToolResult(
        content=[content.text("done")], structured={"rows": {str(row): [row] for row in range(size // 8)}}
    )


@tool
async def emitted(ctx: Context, size: int) -> str:
    """Emit many small blocks."""
    for _ in range(16):
        await ctx.emit("a" * (size // 16))
    return "done"


@tool
async def emitted_at_once(ctx: Context, size: int) -> str:
    """Emit one block."""
    await ctx.emit("a" * size)
    return "done"


@tool
async def logged(ctx: Context, size: int) -> str:
    """Send a log message."""
    ctx.log("info", {"rows": ["abcdefgh"] * (size // 11)})
    await asyncio.sleep(0)
    return "done"


@tool
async def logged_by_name(ctx: Context, size: int) -> str:
    """Send a log message of a logger with a long name."""
    ctx.log("info", "done", logger="a" * size)
    return "done"


@tool
async def reported(ctx: Context, size: int) -> str:
    """Report progress with a long message."""
    ctx.progress(1, message="a" * size)
    return "done"


@tool
async def never_converted(ctx: Context, size: int) -> Any:
    """Return something with a part that has no JSON form."""
    return ["a" * size, object()]


@tool
async def never_converted_block(ctx: Context, size: int) -> str:
    """Emit it."""
    await ctx.emit({"a": "a" * size, "b": object()})
    return "done"


@tool
async def never_written(size: int) -> str:
    """Return text that cannot be written as JSON."""
    return "a" * size + "\ud800"


@tool
async def never_converted_behind_blocks(ctx: Context, size: int) -> Any:
    """Emit a part of what is too large together."""
    await ctx.emit("a" * (size // 3))
    return ["a" * (size // 3), object()]


@tool
async def asked(ctx: Context, size: int) -> str:
    """Ask a long question."""
    return str(await ctx.elicit("sure", "a" * size, bool))


@prompt("large")
async def large_prompt(size: str) -> str:
    """Return a prompt."""
    return "a" * int(size)


@resource("large://{size}")
async def large_resource(size: str) -> bytes:
    """Return a resource."""
    return b"a" * int(size)
