"""Features for clients beyond the conformance fixtures: structured output, a resource that asks, endless work."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from pydantic import BaseModel

from gateway import Context, resource, tool


class Sum(BaseModel):
    """The result of `add`."""

    total: int
    terms: int


class Key(BaseModel):
    """The answer that opens the vault."""

    key: str


@tool
async def hold(ctx: Context) -> str:
    """Report progress, then work until cancelled, and record that in a file."""
    ctx.progress(1)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        (Path(os.environ["TEST_DIRECTORY"]) / "cancelled").touch()
        raise
    return "never"


@tool
async def add(numbers: list[int]) -> Sum:
    """Add numbers up."""
    return Sum(total=sum(numbers), terms=len(numbers))


@resource("vault://{name}", mime_type="text/plain")
async def vault(ctx: Context, name: str) -> str:
    """The content of a vault, for users with the key."""
    answer = await ctx.elicit("key", f"Which key opens {name}?", Key)
    return f"{name} opened with {answer.key}"
