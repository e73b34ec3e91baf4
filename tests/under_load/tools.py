"""Tools that record in files what they do and where, so tests can count it."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from gateway import Context, tool

RELEASE = int(os.environ.get("GATEWAY_DEMO_RELEASE", "1"))
QUESTIONS = 8


class Name(BaseModel):
    name: str


def noted_in(file: str) -> Path:
    return Path(os.environ["TEST_DIRECTORY"]) / file


def note(file: str, *words: object) -> None:
    """Add a line in one piece, even if others write too."""
    with noted_in(file).open("ab", buffering=0) as notes:
        notes.write(" ".join(map(str, words)).encode() + b"\n")


def burn(milliseconds: int) -> None:
    end = time.process_time() + milliseconds / 1000
    while time.process_time() < end:
        pass


async def at_gate() -> None:
    while not noted_in("gate").exists():  # noqa: ASYNC110 - a test in another process opens it
        await asyncio.sleep(0.01)


@tool
async def crunch(ctx: Context, call: str, units: int, unit_ms: int) -> str:
    """Do the same as the demo tool of this name, and record each unit."""
    done: int = ctx.resumed(0)
    while done < units:
        burn(unit_ms)
        note("units", call, done, ctx.replica_id)
        done += 1
        await ctx.checkpoint(done)
    return f"{done} units"


@tool
async def block(milliseconds: int) -> str:
    """Make all other calls on this replica wait."""
    burn(milliseconds)
    return "done"


@tool
async def march(ctx: Context, call: str) -> str:
    """Do one step after the other until the halt file exists, and record each leg and each step."""
    note("legs", call, ctx.replica_id)
    steps: int = ctx.resumed(0)
    while not noted_in(f"halt-{call}").exists():
        steps += 1
        note("steps", call, steps, ctx.replica_id)
        await ctx.checkpoint(steps)
        await asyncio.sleep(0.01)
    return f"{steps} steps"


@tool(asks={f"question_{number}": Name for number in range(QUESTIONS)})
async def interview(ctx: Context, call: str, unit_ms: int) -> str:
    """Ask one question after the other, and work on each answer."""
    for number in range(QUESTIONS):
        await ctx.elicit(f"question_{number}", f"Question {number}?", Name)
        await ctx.step(f"work_{number}", work, call, number, ctx.replica_id, unit_ms)
        await ctx.checkpoint(number)
    return f"{QUESTIONS} answers"


async def work(call: str, number: int, replica: str, unit_ms: int) -> None:
    burn(unit_ms)
    note("works", call, number, replica)


@tool(asks={"name": Name})
async def reserve(ctx: Context, call: str) -> str:
    """Do one thing before a question, and another one at the gate after it."""
    await ctx.step("before", reserved, "before", call, ctx.replica_id)
    await ctx.elicit("name", "For whom?", Name)
    await ctx.step("after", reserved_at_gate, "after", call, ctx.replica_id)
    return call


async def reserved(file: str, call: str, replica: str) -> None:
    note(file, call, replica)


async def reserved_at_gate(file: str, call: str, replica: str) -> None:
    note(file, call, replica)
    await at_gate()


@tool
async def stand_at_gate(call: str) -> str:
    """Wait until it opens."""
    note("standing", call)
    await at_gate()
    return call


class SizeInWords(BaseModel):
    size: str


class SizeInNumbers(BaseModel):
    size: int


Size: type[Any] = SizeInWords if RELEASE == 1 else SizeInNumbers


@tool(task="optional", asks={"name": Name, "size": Size})
async def order(ctx: Context) -> str:
    """Ask for a name, the same in both releases, and for a size, differently in each."""
    name = await ctx.elicit("name", "For whom?", Name)
    size = await ctx.elicit("size", "How large?", Size)
    return f"{name.name}: {size.size!r}"


@tool(task="optional", version=RELEASE)
async def count_on(ctx: Context) -> str:
    """Count until the gate opens: release 1 stores only the number, release 2 also the replica that counted."""
    kept: Any = ctx.resumed(0 if RELEASE == 1 else {"done": 0, "by": []})
    done, by = (kept, []) if RELEASE == 1 else (kept["done"], kept["by"])
    while not noted_in("gate").exists():
        done += 1
        note("counted", done, RELEASE)
        await ctx.checkpoint(done if RELEASE == 1 else {"done": done, "by": [*by, RELEASE]})
        await asyncio.sleep(0.01)
    return f"counted to {done}"


if RELEASE == 2:

    @count_on.migrate(from_=1, to=2)
    def add_who_counted(done: Any) -> Any:
        return {"done": done, "by": [1]}
