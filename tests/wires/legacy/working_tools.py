"""Tools that work for a long time, or announce changes. None of them needs a task store."""

from __future__ import annotations

from gateway import Context, resource, tool
from tests.wires.draft.tools import note, opened


@tool
async def outlive(gate: str) -> str:
    """Wait for a gate, and note the end."""
    note(f"started-{gate}", "")
    await opened(gate)
    note(f"ended-{gate}", "")
    return "ended"


@tool
async def change(ctx: Context, what: str) -> str:
    """Announce that something has changed."""
    ctx.changed(what)
    return "told"


@resource("test://watched", announces_changes=True)
async def watched() -> str:
    """A text that clients may watch."""
    return "watched"
