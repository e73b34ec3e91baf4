"""A long result in segments. Each segment is written only once, and stored as soon as it is written."""

from __future__ import annotations

import asyncio
from typing import Annotated

from pydantic import Field

from gateway import Context, content, tool

SECONDS_PER_SECTION = 0.5
TOPICS = ("Weather", "Traffic", "Events", "Food", "History", "Parks")


async def _write(city: str, number: int) -> str:
    await asyncio.sleep(SECONDS_PER_SECTION)
    return f"{number}. {TOPICS[(number - 1) % len(TOPICS)]} in {city}: nothing to complain about."


@tool(task="optional", streams=True)
async def report(ctx: Context, city: str, sections: Annotated[int, Field(ge=1, le=100)] = 3) -> None:
    """Write a report about a city, section by section, and report progress."""
    for number in range(1, sections + 1):
        section = await ctx.step(f"section {number}", _write, city, number)
        await ctx.emit(content.text(section))
        ctx.progress(number, sections, f"wrote section {number} of {sections}")
