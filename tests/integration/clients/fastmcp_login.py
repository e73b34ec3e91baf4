"""Logs in at a gateway with the `fastmcp` client, calls tools, and prints what it saw as one JSON object.

Usage: fastmcp_login.py URL TOOL…, with the Python of an environment that has fastmcp.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from fastmcp import Client  # type: ignore[import-not-found]  # in its own environment


async def drive(url: str, tools: list[str]) -> dict[str, Any]:
    """Log in as a user's client does, with no setting but `auth`, and return what it saw."""
    questions: list[str] = []

    async def answer(message: str, _type: Any, _params: Any, _context: Any) -> dict[str, str]:
        questions.append(message)
        return {"topic": "sailing"}

    async with Client(url, auth="oauth", elicitation_handler=answer) as client:
        listed = [tool.name for tool in await client.list_tools()]
        results = ["".join(block.text for block in (await client.call_tool(tool)).content) for tool in tools]
    return {"listed": listed, "results": results, "questions": questions}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(drive(sys.argv[1], sys.argv[2:]))) + "\n")
