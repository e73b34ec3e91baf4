"""A tool that needs a scope."""

from __future__ import annotations

from gateway import tool


@tool(scopes=["secrets:read"])
async def guarded() -> str:
    """Return a secret."""
    return "secret"
