"""A tool that runs only as a task; the replicas that serve it need Redis and a worker."""

from __future__ import annotations

from typing import Final

from gateway import Context, tool
from tests.agents.tools import QUESTIONS, Resolution


@tool(task="required")
async def research_bug(ctx: Context, bug: int) -> str:
    """Find out about a bug. The user is asked how it was resolved."""
    how = (await ctx.elicit("resolution", QUESTIONS[0], Resolution)).resolution
    return f"Bug {bug} was resolved in the background: {how}."


TASK_TOOL: Final = "research_bug"
RESEARCHED: Final = "Bug 7 was resolved in the background: Duplicate."
