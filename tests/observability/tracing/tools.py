"""Tools that are traced, and that log."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time

from pydantic import BaseModel

from gateway import Context, ProtocolError, tool

log = logging.getLogger("tests.observability.tracing.tools")


class Start(BaseModel):
    start: str


class End(BaseModel):
    end: str


def book(place: str) -> str:
    """Log from a thread of the leg."""
    log.info("booked in %s", "a step" if threading.current_thread() is not threading.main_thread() else "the loop")
    return f"booked {place}"


@tool(task="optional", start="call")
async def travel(ctx: Context, purse: str) -> str:
    """Ask twice, continue as a task if possible, and book."""
    log.info("travelling")
    start = await ctx.elicit("start", "From where?", Start)
    end = await ctx.elicit("end", "To where?", End)
    await ctx.detach()
    booked = await ctx.step("book", book, end.end)
    return f"{start.start}, {booked}, {ctx.call_id}"


@tool
async def fail(how: str) -> str:
    """Fail in some way."""
    log.warning("about to fail")
    if how == "code":
        raise ProtocolError(-32010, "not today")
    raise ValueError("of secret cause\n2026-01-01T00:00:00.000Z error   forged")


@tool
async def sleep(seconds: float) -> str:
    """Outlive the time limit."""
    await asyncio.sleep(seconds)
    return "slept"


@tool
async def block(seconds: float) -> str:
    """Hold the event loop."""
    time.sleep(seconds)  # noqa: ASYNC251 - that is what it is for
    return "blocked"


@tool
async def imported(name: str) -> str:
    """Return whether this process has imported a module."""
    return str(name in sys.modules)


@tool
async def inner(ctx: Context) -> str:
    """Make spans of its own, in the leg and in a thread of a step."""
    from opentelemetry import trace  # noqa: PLC0415 - only where traces are on

    tracer = trace.get_tracer("tests")

    def in_a_step() -> None:
        with tracer.start_as_current_span("own span in a step"):
            log.info("in a span")

    with tracer.start_as_current_span("own span in the leg"):
        pass
    await ctx.step("traced", in_a_step)
    return ctx.call_id


@tool(task="optional")
async def fail_later(ctx: Context) -> str:
    """Fail in a worker."""
    await ctx.step("book", book, "nothing")
    raise ValueError("of secret cause")


@tool
async def compute(ctx: Context) -> str:
    """Compute until another replica continues."""
    log.info("computing")
    done = ctx.resumed(0)
    while not done:
        await asyncio.sleep(0.01)
        await ctx.checkpoint(time.monotonic_ns())
    return "computed elsewhere"
