"""Has a user of the official `mcp` client of 2.x visit the URLs that a tool needs first, and prints what happened.

Usage: visiting_python2.py MODE URL TOOL ARGUMENTS, where the mode is that of the client: `legacy` or `auto`. It prints
the URLs and ids of the questions and the text of the result as one JSON object.
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


async def drive(mode: str, url: str, tool: str, arguments: str) -> dict[str, Any]:
    """Make the call, and return what the user saw."""
    asked: list[list[str | None]] = []

    async def answer(context: Any, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
        assert isinstance(params, mcp_types.ElicitRequestURLParams)
        asked.append([params.url, params.elicitation_id])
        return mcp_types.ElicitResult(action="accept")

    async with (
        httpx2.AsyncClient(timeout=30) as http_client,
        Client(streamable_http_client(url, http_client=http_client), mode=mode, elicitation_callback=answer) as client,
    ):
        result = await client.call_tool(tool, json.loads(arguments))
        (block,) = result.content
        assert isinstance(block, mcp_types.TextContent)
        return {"asked": asked, "text": block.text, "failed": result.is_error}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(drive(*sys.argv[1:]))))
