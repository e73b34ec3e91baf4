"""Has the official `mcp` client of 2.x call a tool until it is refused, and prints the message for its user.

Usage: refused_python2.py URL TOKEN LATER-TOKEN TOOL CALLS. It connects with one token, then makes so many calls at once
with the other.
"""

from __future__ import annotations

import asyncio
import os
import sys

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client


async def drive(url: str, token: str, later_token: str, tool: str, calls: str) -> None:
    """Print the error of the first call that fails, and exit."""
    headers = {"authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http_client,
        Client(streamable_http_client(url, http_client=http_client)) as client,
    ):
        http_client.headers["authorization"] = f"Bearer {later_token}"
        pending = [asyncio.ensure_future(client.call_tool(tool)) for _ in range(int(calls))]
        for call in asyncio.as_completed(pending):
            try:
                await call
            except Exception as error:  # noqa: BLE001 - whatever it is, the user sees its message
                sys.stdout.write(str(error))
                sys.stdout.flush()
                os._exit(0)  # open requests need not end


if __name__ == "__main__":
    asyncio.run(drive(*sys.argv[1:]))
