"""Tools that block the event loop of their replica, and tools that only seem to."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from gateway import Context, Elicit, prompt, tool

GATES_VARIABLE = "TEST_BLOCKING_TOOLS_GATES"
"""Names the directory of the files that open gates."""

POLL_SECONDS = 0.01
LARGE_FORM = {
    "type": "object",
    "properties": {f"field_{number}": {"type": "string", "maxLength": 100} for number in range(5000)},
}


def _is_open(gate: str) -> bool:
    return (Path(os.environ[GATES_VARIABLE]) / gate).exists()


def wait_at(gate: str) -> str:
    path = Path(os.environ[GATES_VARIABLE]) / gate
    while not os.access(path, os.F_OK):  # it has no frames, of which the log names only the innermost ones
        time.sleep(POLL_SECONDS)
    return gate


@tool
async def block(ctx: Context, gate: str) -> str:
    """Block the event loop until a gate opens."""
    return wait_at(gate)


@tool("check")
async def check_slowly(ctx: Context, gate: Annotated[str, AfterValidator(wait_at)]) -> str:
    """Hold the event loop while the arguments are checked."""
    return gate


@tool
async def ask_much(ctx: Context, gate: str) -> str:
    """Have the gateway read a large form repeatedly until a gate opens."""
    opened = threading.Event()  # a look at a file would let other threads run, and they would find the stack here

    def look() -> None:
        wait_at(gate)
        opened.set()

    threading.Thread(target=look, daemon=True).start()
    while not opened.is_set():
        Elicit("", LARGE_FORM).question("form")
    return gate


@prompt
async def recite(ctx: Context, gate: str) -> str:
    """Hold the event loop for a prompt."""
    return wait_at(gate)


@tool
async def wait(ctx: Context, gate: str) -> str:
    """Wait for a gate correctly."""
    while not _is_open(gate):  # noqa: ASYNC110 - another process opens it
        await asyncio.sleep(POLL_SECONDS)
    return gate


@tool
def wait_in_a_thread(gate: str) -> str:
    """Wait for a gate as a plain function, which runs in a thread."""
    return wait_at(gate)
