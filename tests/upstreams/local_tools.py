"""A local tool, next to those of upstreams."""

from __future__ import annotations

from gateway import tool


@tool
async def local(text: str = "local") -> str:
    """Say the text again."""
    return text
