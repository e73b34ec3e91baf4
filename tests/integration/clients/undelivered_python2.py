"""Has the official `mcp` client of 2.x answer questions whose answers cannot be delivered, and prints its results.

Usage: undelivered_python2.py URL. It calls a tool that asks and one that does not, three times each, in one
session, and prints what each returned as a JSON list.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx2
import mcp_types
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client


async def answer(context: Any, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
    return mcp_types.ElicitResult(action="accept", content={"name": "Ada"})


async def drive(url: str) -> list[str]:
    """Make the calls in one session, and return their texts."""
    async with (
        httpx2.AsyncClient(timeout=30) as http_client,
        Client(
            streamable_http_client(url, http_client=http_client), mode="legacy", elicitation_callback=answer
        ) as client,
    ):
        return [text_of(await client.call_tool(name)) for name in 3 * ("ask", "plain")]


def text_of(result: mcp_types.CallToolResult) -> str:
    return "".join(block.text for block in result.content if isinstance(block, mcp_types.TextContent))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(drive(*sys.argv[1:]))))
