"""Many tools for our server: `echo` and others, `BENCH_TOOLS` in total (default: 1,000)."""

from __future__ import annotations

import os

from bench.tools import echo
from gateway import tool
from gateway.authoring.tools import Tool

__all__ = ["echo"]


def _another(number: int) -> Tool:
    @tool(name=f"echo_{number:04d}")
    async def another(text: str) -> str:
        """Say the text again."""
        return text

    return another


TOOLS = int(os.environ.get("BENCH_TOOLS", "1000"))
globals().update((f"echo_{number:04d}", _another(number)) for number in range(TOOLS - 1))
