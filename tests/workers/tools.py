"""Tools that a test observes and controls through files in one directory."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel

from gateway import Context, ProtocolError, content, tool

POLL_SECONDS = 0.01


def note(name: str, line: str) -> None:
    """Append a line to a file of notes."""
    with (Path(os.environ["TEST_DIRECTORY"]) / name).open("a") as file:
        file.write(f"{line}\n")


def is_open(gate: str) -> bool:
    return (Path(os.environ["TEST_DIRECTORY"]) / gate).exists()


async def opened(gate: str) -> None:
    while not is_open(gate):  # noqa: ASYNC110 - another process opens it
        await asyncio.sleep(POLL_SECONDS)


class Name(BaseModel):
    name: str


@tool(task="required")
async def say(text: str) -> str:
    """Say it."""
    return text


@dataclass
class Asker:
    worker: str
    at: datetime


def asker_now(worker: str) -> Asker:
    return Asker(worker, datetime.now(UTC))


@tool(task="required")
async def tenant(ctx: Context) -> str:
    """Return the tenant of the request that created the task, before and after a question."""
    before = ctx.headers["X-Tenant"]
    await ctx.elicit("name", "Who are you?", Name)
    return f"{before} {ctx.headers['x-tenant']}"


@tool(task="required")
async def ask(ctx: Context) -> str:
    """Ask for a name."""
    asker = await ctx.step("asker", asker_now, ctx.replica_id)
    seen = ctx.resumed([asker], list[Asker])
    await ctx.checkpoint(seen, list[Asker])
    given = await ctx.elicit("name", "Who are you?", Name)
    assert seen == [asker]
    return f"{given.name}: asked by {asker.worker}, answered by {ctx.replica_id}"


@tool(task="required", max_attempts=1)
async def wait(ctx: Context, gate: str = "gate") -> str:
    """Wait for a gate, without checkpoints. May be tried once."""
    note("started", ctx.replica_id)
    try:
        await opened(gate)
    except asyncio.CancelledError:
        note("cancelled", ctx.replica_id)
        raise
    return f"done by {ctx.replica_id}"


@tool(task="required")
async def compute(ms: int) -> str:
    """Use the processor for a time."""
    over = time.process_time() + ms / 1000
    while time.process_time() < over:
        pass
    note("computed", str(ms))
    return "done"


@tool(task="required", max_attempts=1)
async def count(ctx: Context, units: int = 10) -> str:
    """Count units, with a checkpoint after each. Stops before unit 5 until its gate opens. May be tried once."""
    for unit in range(ctx.resumed(0), units):
        note("units", f"{unit} {ctx.replica_id}")
        while unit == 4 and not is_open("gate"):
            await ctx.checkpoint(unit)
            await asyncio.sleep(POLL_SECONDS)
        await ctx.checkpoint(unit + 1)
    return f"counted by {ctx.replica_id}"


async def write(number: int) -> str:
    note("steps", str(number))
    return f"part {number}"


@tool(task="required")
async def write_parts(ctx: Context, parts: int = 4) -> str:
    """Write parts, each a step and a segment. Waits after the second part until its gate opens."""
    note("started", ctx.replica_id)
    for number in range(1, parts + 1):
        await ctx.emit(content.text(await ctx.step(f"part {number}", write, number)))
        ctx.progress(number, parts, "writing")
        if number == 2:
            note("kept", ctx.replica_id)
            await opened("gate")
    return f"written by {ctx.replica_id}"


@tool(task="required")
async def block(ctx: Context) -> str:
    """Block the event loop until its gate opens."""
    note("blocking", ctx.replica_id)
    while not is_open("gate"):
        time.sleep(POLL_SECONDS)  # noqa: ASYNC251 - blocking is the point
    return f"blocked {ctx.replica_id}"


@tool(task="required", max_attempts=3)
async def produce(ctx: Context, kind: str, size: int) -> str:
    """Have something of a size to store."""
    note("started", ctx.replica_id)
    text = "x" * size
    if kind == "step":
        await ctx.step("loot", lambda: text)
    elif kind == "checkpoint":
        await ctx.checkpoint(text)
    elif kind == "segments":
        for _ in range(4):
            await ctx.emit(text[: size // 2])
    elif kind == "question":
        await ctx.elicit("name", text, Name)
    elif kind == "failure":
        await ctx.emit(text)
        raise ProtocolError(-32000, "No", {"because": text})
    return text if kind == "result" else "done"
