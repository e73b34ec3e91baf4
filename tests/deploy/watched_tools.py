"""Tools with something to see for an operator: a call and a task that fail."""

from __future__ import annotations

from gateway import tool


@tool
async def fail() -> str:
    """Fail at once."""
    raise RuntimeError("as it was told to")


@tool(task="required")
async def fail_later() -> str:
    """Fail as a task."""
    raise RuntimeError("as it was told to")
