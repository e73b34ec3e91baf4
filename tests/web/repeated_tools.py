"""Tools and a prompt that show what makes their call the same one."""

from __future__ import annotations

import json

from pydantic import BaseModel

from gateway import Context, prompt, tool


class Yes(BaseModel):
    yes: bool


def ids_of(ctx: Context) -> str:
    return json.dumps([ctx.call_id, ctx.step_id("pay"), str(ctx.uuid("order")), ctx.random("lot")])


@tool
async def pay(ctx: Context, amount: int = 5) -> str:
    """Show the ids of this call."""
    return ids_of(ctx)


@tool
async def refund(ctx: Context, amount: int = 5) -> str:
    """Show the ids of this call."""
    return ids_of(ctx)


@tool
async def sure(ctx: Context, amount: int = 5) -> str:
    """Show the ids of this call after a question."""
    await ctx.elicit("sure", f"Really pay? {ids_of(ctx)}", Yes)
    return ids_of(ctx)


@prompt(name="pay")
async def pay_prompt(ctx: Context) -> str:
    """Show the ids of this call."""
    return ids_of(ctx)
