"""A quick question followed by a long wait. The call becomes a task in between."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel

from gateway import Context, tool

SECONDS_PER_STAGE = 0.5


class Size(BaseModel):
    size: str


class Confirm(BaseModel):
    confirm: bool


async def _do(what: str) -> str:
    await asyncio.sleep(SECONDS_PER_STAGE)
    return what


@tool(task="optional", start="call", asks={"size": Size, "confirm": Confirm})
async def provision_vm(ctx: Context, size: str | None = None) -> str:
    """Provision a virtual machine. Asks for the size, continues in the background, and asks before it costs money."""
    if size is None:
        size = (await ctx.elicit("size", "Which size should the machine have?", Size)).size
    in_background = await ctx.detach()
    name = f"vm-{ctx.uuid('name').hex[:8]}"
    await ctx.step("reserve", _do, f"reserved {name}")
    ctx.progress(1, 3, f"reserved {name}")
    answer = await ctx.elicit("confirm", f"Start {name} of size {size}? It costs money from then on.", Confirm)
    if not answer.confirm:
        return f"{name} was not started."
    await ctx.step("start", _do, f"started {name}")
    ctx.progress(2, 3, f"started {name}")
    await ctx.step("check", _do, f"{name} answers")
    ctx.progress(3, 3, f"{name} answers")
    return f"{name} of size {size} is running{' (provisioned in the background)' if in_background else ''}."
