"""Tools of every kind that can be tasks. Each records its side effects, and signs its result with its flow."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel

from gateway import Context, Elicit, tool
from tests.soak.effects import Effect, note

PATIENT = 1000
"""Attempts of tools that must succeed, however many workers are lost."""

PART_SECONDS = 0.15
HELD_PARTS = 200
"""How long `hold` waits: longer than any customer needs to cancel it, but not endlessly, as some have no customer."""


class Name(BaseModel):
    name: str


class Colour(BaseModel):
    colour: str


class Size(BaseModel):
    size: str


class Go(BaseModel):
    go: str


def began(ctx: Context, order: str) -> None:
    note(Effect("leg", order, ctx.call_id))


async def step(ctx: Context, order: str, key: str) -> str:
    """Do a side effect of this order, under an idempotency key."""
    done: str = await ctx.step(key, do, order, ctx.call_id, ctx.step_id(key))
    return done


async def do(order: str, flow: str, step_id: str) -> str:
    note(Effect("step", order, flow, step_id))
    return f"{step_id.removeprefix(flow + ':')} of {order}"


def receipt(ctx: Context, order: str) -> str:
    return f"order {order} by flow {ctx.call_id}"


@tool(task="required", max_attempts=PATIENT)
async def plain(ctx: Context, order: str) -> str:
    """Return a result."""
    began(ctx, order)
    return receipt(ctx, order)


@tool(task="required", max_attempts=PATIENT)
async def build(ctx: Context, order: str, amount: int) -> str:
    """Build parts: each a step, a segment, progress and a checkpoint."""
    began(ctx, order)
    for part in range(ctx.resumed(0), amount):
        await ctx.emit(await step(ctx, order, f"part {part}"))
        ctx.progress(part + 1, amount)
        await ctx.checkpoint(part + 1)
        await asyncio.sleep(PART_SECONDS)
    return receipt(ctx, order)


@tool(task="required", max_attempts=PATIENT)
async def count(ctx: Context, order: str, amount: int) -> str:
    """Add up squares, with nothing but checkpoints."""
    began(ctx, order)
    reached = ctx.resumed({"units": 0, "total": 0})
    while reached["units"] < amount:
        note(Effect("unit", order, ctx.call_id, str(reached["units"])))
        reached["units"] += 1
        reached["total"] += reached["units"] ** 2
        await ctx.checkpoint(reached)
        await asyncio.sleep(PART_SECONDS)
    return f"{reached['total']}, {receipt(ctx, order)}"


@tool(task="required", max_attempts=PATIENT)
async def survey(ctx: Context, order: str) -> str:
    """Ask for a name, then for two things at once."""
    began(ctx, order)
    given = await ctx.elicit("name", "Who are you?", Name)
    await step(ctx, order, "look up")
    both = await ctx.ask(colour=Elicit("Which colour?", Colour), size=Elicit("Which size?", Size))
    return f"{given.name}, {both['colour'].colour}, {both['size'].size}, {receipt(ctx, order)}"


@tool(task="optional", start="call", max_attempts=PATIENT)
async def ship(ctx: Context, order: str) -> str:
    """Ask for a size as a call, then continue as a task, and ask there too."""
    began(ctx, order)
    size = await ctx.elicit("size", "Which size?", Size)
    await ctx.emit(await step(ctx, order, "pack"))
    await ctx.detach()
    go = await ctx.elicit("go", "Shall it go?", Go)
    await ctx.emit(await step(ctx, order, "send"))
    return f"{size.size}, {go.go}, {receipt(ctx, order)}"


@tool(task="required", max_attempts=PATIENT)
async def fail(ctx: Context, order: str) -> str:
    """Do something, then break."""
    began(ctx, order)
    raise ValueError(await step(ctx, order, "try"))


@tool(task="required", max_attempts=PATIENT)
async def hold(ctx: Context, order: str) -> str:
    """Wait to be cancelled."""
    began(ctx, order)
    for part in range(ctx.resumed(0), HELD_PARTS):
        await ctx.checkpoint(part)
        await asyncio.sleep(PART_SECONDS)
    return receipt(ctx, order)


@tool(single_use=True)
async def charge(ctx: Context, order: str) -> str:
    """Ask who pays, and charge them. The answer counts once."""
    name = (await ctx.elicit("name", "Who pays?", Name)).name
    note(Effect("step", order, ctx.call_id, f"{ctx.call_id}:charge"))
    return f"{name}, {receipt(ctx, order)}"


@tool(task="required", max_attempts=1)
async def once(ctx: Context, order: str) -> str:
    """Take a while. May be tried once."""
    began(ctx, order)
    await asyncio.sleep(2 * PART_SECONDS)
    return receipt(ctx, order)
