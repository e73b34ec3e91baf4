"""A long computation in units, with a checkpoint after each unit."""

from __future__ import annotations

import time
from typing import Annotated

from pydantic import Field

from gateway import Context, tool


def _burn(milliseconds: int) -> None:
    end = time.process_time() + milliseconds / 1000
    while time.process_time() < end:
        pass


@tool
async def crunch(
    ctx: Context,
    units: Annotated[int, Field(ge=1, le=10_000)],
    unitMs: Annotated[int, Field(ge=0, le=1_000)] = 10,
) -> str:
    """Use `unitMs` milliseconds of CPU time for each unit, and report how many units ran on which replica."""
    done: dict[str, int] = dict(ctx.resumed({}))
    while sum(done.values()) < units:
        _burn(unitMs)
        done[ctx.replica_id] = done.get(ctx.replica_id, 0) + 1
        await ctx.checkpoint(done)
    shares = ", ".join(f"{count} on {replica}" for replica, count in done.items())
    return f"Computed {units} units: {shares}."
