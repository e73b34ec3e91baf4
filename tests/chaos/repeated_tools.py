"""A tool that has an effect in its first leg."""

from __future__ import annotations

from gateway import Context, tool
from tests.workers.tools import note, opened


@tool
async def charge(ctx: Context, order: str, number: int) -> str:
    """Charge before any question: note the idempotency key, and return it once the gate of the round opens."""
    step = ctx.step_id("charge")
    note(f"charges {number}", f"{order} {ctx.replica_id} {step}")
    await opened(f"gate {number}")
    return step
