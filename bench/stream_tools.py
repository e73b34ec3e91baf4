"""The tool that keeps a stream open."""

from __future__ import annotations

import asyncio

from gateway import Context, tool


@tool
async def linger(ctx: Context) -> None:
    """Tell how far it is, and stay there until the client hangs up."""
    ctx.progress(1, 2)
    await asyncio.Event().wait()
