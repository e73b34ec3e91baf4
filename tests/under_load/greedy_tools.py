"""Tools that occupy a place or a thread until their own gate opens."""

from __future__ import annotations

import asyncio
import time

from gateway import tool
from tests.under_load.tools import note, noted_in

POLL_SECONDS = 0.02


@tool
async def hold_a_place(gate: str) -> str:
    """Occupy a place until the gate opens."""
    note("started", gate)
    while not noted_in(f"gate-{gate}").exists():  # noqa: ASYNC110 - a test in another process opens it
        await asyncio.sleep(POLL_SECONDS)
    return gate


@tool
def hold_a_thread(gate: str) -> str:
    """Occupy a thread until the gate opens."""
    note("started", gate)
    while not noted_in(f"gate-{gate}").exists():
        time.sleep(POLL_SECONDS)
    return gate


@tool
def think(text: str) -> str:
    """Need a thread for a short time."""
    return text
