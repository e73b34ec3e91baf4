"""Has the official `mcp` client of 1.x answer questions whose answers cannot be delivered, and prints its results.

Usage: undelivered_python1.py URL, with the Python of an environment that has mcp 1.x. It calls a tool that asks and one
that does not, three times each, and prints what each returned as a JSON list.
"""

# mypy: ignore-errors
# The type checker sees 2.x, which is installed in its environment.

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx
from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client


async def answer(_context: Any, _params: Any) -> Any:
    return types.ElicitResult(action="accept", content={"name": "Ada"})


async def drive(url: str) -> list[str]:
    """Make the calls in one session, and return their texts."""
    async with (
        httpx.AsyncClient(timeout=30) as http_client,
        streamable_http_client(url, http_client=http_client) as (read_stream, write_stream, _),
        ClientSession(read_stream, write_stream, elicitation_callback=answer) as session,
    ):
        await session.initialize()
        return [(await session.call_tool(name)).content[0].text for name in 3 * ("ask", "plain")]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(drive(*sys.argv[1:]))))
