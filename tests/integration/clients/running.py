"""Runs third-party clients in separate processes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from loadtest.cluster import REPOSITORY

CLIENT_SECONDS = 60


async def said_by(*command: Path | str) -> tuple[str, str]:
    """Run a client, which must succeed, and return its output and its errors."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=REPOSITORY,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, errors = await asyncio.wait_for(process.communicate(), CLIENT_SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    said = output.decode(errors="replace"), errors.decode(errors="replace")
    assert process.returncode == 0, "".join(said)
    return said
