"""Tools that refuse clients: one that needs a scope, and one that keeps its place."""

from __future__ import annotations

import asyncio

from gateway import tool


@tool
async def plain() -> str:
    """Return at once."""
    return "done"


@tool(scopes=["admin"])
async def guarded() -> str:
    """Return at once, to callers with the scope."""
    return "done"


@tool
async def hold() -> str:
    """Keep a place for as long as the client waits."""
    await asyncio.Event().wait()
    return "never"
