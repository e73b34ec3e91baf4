"""Tools that both releases serve from this file. They record their effects in a file that neither release touches.

The file imports nothing of the tests, because the previous release has others.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from pydantic import BaseModel

from gateway import Context, Elicit, Sample, prompt, resource, tool

UNIT_SECONDS = 0.1
HELD_SECONDS = 60.0
"""How long `hold` waits: longer than any client, but not endlessly."""

PATIENT = 1000
"""Attempts of tools that must succeed: no release may use up any."""


class Name(BaseModel):
    name: str


class Size(BaseModel):
    size: int


def note(ctx: Context, what: str, order: str, key: str = "") -> None:
    """Add a line with one system call, and with everything that must be the same on every leg of a call."""
    derived = f"{ctx.now().isoformat()} {ctx.uuid('id')} {ctx.random('number')} {ctx.step_id('step')}"
    effect = {"what": what, "order": order, "flow": ctx.call_id, "key": key, "derived": derived}
    line = json.dumps({**effect, "process": ctx.replica_id, "at": time.time()}) + "\n"
    with (Path(os.environ["TEST_DIRECTORY"]) / "effects").open("ab", buffering=0) as effects:
        effects.write(line.encode())


def receipt(ctx: Context, order: str) -> str:
    """Sign a result for the caller, whom a task knows only from what is stored."""
    who = ctx.principal
    assert who is not None
    return f"{order} for {who.subject}, {who.claims['email']}, {' '.join(sorted(who.scopes))}"


async def do(ctx: Context, order: str, key: str) -> str:
    """Have a side effect, once."""

    def effect() -> str:
        note(ctx, "step", order, key)
        return f"{key} of {order}"

    done: str = await ctx.step(key, effect)
    return done


@tool(scopes=["shop"])
async def quote(ctx: Context, order: str) -> str:
    """Answer at once."""
    note(ctx, "leg", order)
    await do(ctx, order, "quote")
    return receipt(ctx, order)


@tool(scopes=["shop"], task="optional", max_attempts=PATIENT)
async def buy(ctx: Context, order: str) -> str:
    """Ask who buys, then two things at once, with a side effect after each answer."""
    note(ctx, "leg", order)
    given = await ctx.elicit("name", "Who are you?", Name)
    await do(ctx, order, "look up")
    both = await ctx.ask(size=Elicit("Which size?", Size), colour=Sample("Which colour?", max_tokens=9))
    await ctx.emit(await do(ctx, order, "pay"))
    return f"{given.name}, {both['size'].size}, {both['colour'].text}, {receipt(ctx, order)}"


@tool(scopes=["shop"], single_use=True)
async def charge(ctx: Context, order: str) -> str:
    """Ask who pays, and charge them without a step: only the answer's single use protects them."""
    note(ctx, "leg", order)
    given = await ctx.elicit("name", "Who pays?", Name)
    note(ctx, "step", order, "charge")
    return f"{given.name}, {receipt(ctx, order)}"


@tool(scopes=["shop"], task="optional", max_attempts=PATIENT)
async def count(ctx: Context, order: str, units: int) -> str:
    """Compute, with a checkpoint after each unit, at which the call can move to another process."""
    note(ctx, "leg", order)
    for unit in range(ctx.resumed(0), units):
        note(ctx, "step", order, f"unit {unit}")
        await asyncio.sleep(UNIT_SECONDS)
        await ctx.checkpoint(unit + 1)
    return receipt(ctx, order)


@tool(scopes=["shop"], task="optional", max_attempts=PATIENT)
async def build(ctx: Context, order: str, parts: int) -> str:
    """Build parts: each a step, a segment, progress and a checkpoint."""
    note(ctx, "leg", order)
    for part in range(ctx.resumed(0), parts):
        await ctx.emit(await do(ctx, order, f"part {part}"))
        ctx.progress(part + 1, parts, f"part {part}")
        await ctx.checkpoint(part + 1)
        await asyncio.sleep(UNIT_SECONDS)
    return receipt(ctx, order)


@tool(scopes=["shop"], task="optional", start="call", max_attempts=PATIENT)
async def ship(ctx: Context, order: str) -> str:
    """Ask for a name as a call, then continue as a task, and ask there too."""
    note(ctx, "leg", order)
    given = await ctx.elicit("name", "Who are you?", Name)
    await ctx.emit(await do(ctx, order, "pack"))
    await ctx.detach()
    size = await ctx.elicit("size", "Which size?", Size)
    await ctx.emit(await do(ctx, order, "send"))
    return f"{given.name}, {size.size}, {receipt(ctx, order)}"


@tool(scopes=["shop"], task="optional", max_attempts=PATIENT)
async def hold(ctx: Context, order: str) -> str:
    """Wait to be cancelled. Without a checkpoint, nothing but a message ends it soon."""
    note(ctx, "leg", order)
    try:
        await asyncio.sleep(HELD_SECONDS)
    except asyncio.CancelledError:
        note(ctx, "step", order, "cancelled")
        raise
    return receipt(ctx, order)


@tool(scopes=["shop"])
async def announce(ctx: Context, order: str) -> str:
    """Notify all listeners that the news have changed."""
    note(ctx, "leg", order)
    ctx.changed("news://today")
    return receipt(ctx, order)


@resource("news://today", announces_changes=True)
async def news() -> str:
    """Show the news."""
    return "none"


@prompt
async def letter(ctx: Context, order: str) -> str:
    """Ask who writes."""
    note(ctx, "leg", order)
    given = await ctx.elicit("name", "Who are you?", Name)
    return f"{given.name}, {order}"


def more(number: int) -> Callable[[], Awaitable[None]]:
    """Make one more tool, as a list with fewer fits on a page."""

    @tool(f"more_{number}", task="optional")
    async def more() -> None:
        """Do nothing."""

    return more


globals().update((f"more_{number}", more(number)) for number in range(300))
