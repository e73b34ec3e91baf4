"""Has a user of the official `mcp` client of 1.x visit the URLs that a tool needs first, and prints what happened.

Usage: visiting_python1.py URL TOOL ARGUMENTS, with the Python of an environment that has mcp 1.x. It prints the
URLs and ids of the questions and the text of the result as one JSON object.
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


async def drive(url: str, tool: str, arguments: str) -> dict[str, Any]:
    """Make the call, and return what the user saw."""
    asked = []

    async def answer(_context: Any, params: Any) -> Any:
        asked.append([params.url, params.elicitationId])
        return types.ElicitResult(action="accept")

    async with (
        httpx.AsyncClient(timeout=30) as http_client,
        streamable_http_client(url, http_client=http_client) as (read_stream, write_stream, _),
        ClientSession(read_stream, write_stream, elicitation_callback=answer) as session,
    ):
        await session.initialize()
        result = await session.call_tool(tool, json.loads(arguments))
        return {"asked": asked, "text": result.content[0].text, "failed": result.isError}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(drive(*sys.argv[1:]))))
