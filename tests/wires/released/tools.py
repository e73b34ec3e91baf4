"""Tools whose calls become tasks, or whose states are good for one use. They use the public API alone."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel

from gateway import Context, Declined, Elicit, ProtocolError, content, tool

RAN: list[str] = []
"""The names of tools that ran, for tests of work that must not run twice."""

PAYING = asyncio.Event()
"""Set as soon as somebody pays at a gate."""

GATES: dict[str, asyncio.Event] = {}
"""The gates that tools wait for, by the name that a test gives them."""


def _not_bob(name: str) -> str:
    if name == "Bob":
        raise ValueError("not Bob")
    return name


class Who(BaseModel):
    name: str


class Picky(BaseModel):
    name: Annotated[str, AfterValidator(_not_bob)]


@tool(task="required")
async def work(ctx: Context, text: str = "done") -> str:
    """Always a task."""
    return text


@tool(task="optional")
async def maybe(ctx: Context, number: int = 1) -> str:
    """A task for those who can."""
    return f"{number}, {'task' if await ctx.detach() else 'call'}"


@tool(task="optional", start="call")
async def echo_later(ctx: Context, text: str) -> str:
    """Become a task if possible, and return whether that worked."""
    await ctx.detach()
    return text


@tool(task="required", start="call")
async def ask_first(ctx: Context) -> str:
    """Ask as a call, then work as a task."""
    who = await ctx.elicit("who", "Who are you?", Who)
    await ctx.step("note", RAN.append, "note")
    await ctx.emit("before")
    await ctx.detach()
    await ctx.emit("after")
    return f"Hello {who.name}"


@tool(task="optional")
async def ask_later(ctx: Context) -> str:
    """A task for those who can, with a question."""
    who = await ctx.elicit("who", "Who are you?", Who)
    return f"{who.name}, {'task' if await ctx.detach() else 'call'}"


@tool(task="optional", start="call")
async def ask_much(ctx: Context, size: int) -> str:
    """Keep so many characters, then ask."""
    kept = await ctx.step("loot", lambda: "x" * size)
    who = await ctx.elicit("who", "Who are you?", Who)
    return f"{who.name} keeps {len(str(kept))}"


@tool(task="required")
async def two_questions(ctx: Context) -> str:
    """Ask twice at once."""
    got = await ctx.ask(a=Elicit("A?", Who), b=Elicit("B?", Who))
    return f"{got['a'].name} and {got['b'].name}"


@tool(task="required")
async def picky(ctx: Context) -> str:
    """Ask for a name; one of them passes the schema and still does not do."""
    try:
        return (await ctx.elicit("who", "Who?", Picky)).name
    except Declined:
        return "nobody"


@tool(task="required")
async def sampler(ctx: Context) -> str:
    """Ask the model."""
    return (await ctx.sample("s", "?", max_tokens=5)).text


@tool(task="required")
async def progressing(ctx: Context, gate: str = "") -> str:
    """Tell how far it is, and wait."""
    ctx.progress(2, 5, "Writing")
    await ctx.checkpoint(1)
    if gate:
        await GATES[gate].wait()
    return "done"


@tool(task="required")
async def broken(ctx: Context) -> str:
    """Emit, then fail."""
    await ctx.emit("first")
    raise LookupError("hunter2")


@tool(task="required")
async def refused(ctx: Context) -> str:
    """End in a JSON-RPC error."""
    raise ProtocolError(-32000, "Out of tea", {"tea": 0})


@tool(task="required", scopes=["secret"])
async def guarded(ctx: Context) -> str:
    """For some callers."""
    return "guarded"


@tool
async def plain(ctx: Context) -> Any:
    """Never a task."""
    return content.text("plain")


@tool(single_use=True)
async def pay(ctx: Context, gate: str = "") -> str:
    """Ask, then do what must not be done twice."""
    RAN.append("leg")
    who = await ctx.elicit("who", "Who pays?", Who)
    if gate:
        PAYING.set()
        await GATES[gate].wait()
    RAN.append("paid")
    if who.name == "poor":
        raise ProtocolError(-32001, "No money")
    return f"{who.name} paid"


def _seen(ctx: Context) -> dict[str, Any]:
    assert ctx.principal is not None
    return {"scopes": sorted(ctx.principal.scopes), "claims": dict(ctx.principal.claims)}


@tool
async def who_calls(ctx: Context) -> dict[str, Any]:
    """Return what the caller's token grants and says."""
    return _seen(ctx)


@tool
async def ask_who_calls(ctx: Context) -> dict[str, Any]:
    """Do the same after a question."""
    await ctx.elicit("who", "Who are you?", Who)
    return _seen(ctx)


@tool(task="required")
async def who_calls_as_task(ctx: Context) -> dict[str, Any]:
    """Do the same in the second leg of a task."""
    await ctx.elicit("who", "Who are you?", Who)
    return _seen(ctx)
