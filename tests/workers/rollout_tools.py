"""Tools that may be tried once. Each notes every line that it runs, between points from which it may continue."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel

from gateway import Context, tool
from tests.workers.tools import POLL_SECONDS, is_open, note, opened

LAST_GATE = "last gate"
"""Opens when no worker leaves any more."""
NO_GATE = "no gate"
"""Never opens."""


class Go(BaseModel):
    go: bool


def line(order: str, what: str) -> None:
    note("lines", f"{order} {what}")


@tool(task="required", max_attempts=1)
async def plain(ctx: Context, order: str, gate: str) -> str:
    """Wait for a gate between two lines."""
    line(order, "begun")
    await opened(gate)
    line(order, "ended")
    return order


@tool(task="required", max_attempts=1)
async def counted(ctx: Context, order: str, gate: str) -> str:
    """Count until the last gate opens, with a checkpoint after each line; stop at the third if its gate never opens."""
    unit = ctx.resumed(0)
    while not is_open(LAST_GATE):
        line(order, f"unit {unit}")
        if unit == 2 and gate == NO_GATE:
            await opened(gate)
        await asyncio.sleep(POLL_SECONDS)
        unit += 1
        await ctx.checkpoint(unit)
    line(order, "ended")
    return order


@tool(task="required", max_attempts=1)
async def asked(ctx: Context, order: str, gate: str) -> str:
    """Take a step, ask, and wait for a gate between two more lines."""
    await ctx.step("before", line, order, "before")
    await ctx.elicit("go", "Go on?", Go)
    line(order, "answered")
    await opened(gate)
    line(order, "ended")
    return order
