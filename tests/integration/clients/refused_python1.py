"""Has the official `mcp` client of 1.x call a tool until it is refused, and prints the message for its user.

Usage: refused_python1.py URL TOKEN LATER-TOKEN TOOL CALLS, with the Python of an environment that has mcp 1.x. It
connects with one token, then makes so many calls at once with the other.
"""

# mypy: ignore-errors
# The type checker sees 2.x, which is installed in its environment.

from __future__ import annotations

import asyncio
import os
import sys
import traceback

import httpx
from mcp import ClientSession, McpError
from mcp.client.streamable_http import streamable_http_client


async def drive(url: str, token: str, later_token: str, tool: str, calls: str) -> None:
    """Print the error of the first call that fails, and exit."""
    headers = {"authorization": f"Bearer {token}"}
    async with (
        httpx.AsyncClient(headers=headers, timeout=30) as http_client,
        streamable_http_client(url, http_client=http_client) as (read_stream, write_stream, _),
        ClientSession(read_stream, write_stream) as session,
    ):
        await session.initialize()
        http_client.headers["authorization"] = f"Bearer {later_token}"
        pending = [asyncio.ensure_future(session.call_tool(tool)) for _ in range(int(calls))]
        for call in asyncio.as_completed(pending):
            try:
                await call
            except McpError as error:
                sys.stdout.write(str(error))
                sys.stdout.flush()
                os._exit(0)  # open requests need not end


if __name__ == "__main__":
    try:
        asyncio.run(drive(*sys.argv[1:]))
    except Exception:  # noqa: BLE001 - a status that ends the session shows in some of them, or in the log
        traceback.print_exc()
