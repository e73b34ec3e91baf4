"""Uses a gateway with the official `mcp` client of before June 2025, and prints what it saw as one JSON object.

Usage: older_python.py URL, with the Python of an environment that has mcp 1.8 or 1.9.
"""

# mypy: ignore-errors
# The type checker sees 2.x, which is installed in its environment.

from __future__ import annotations

import asyncio
import json
import sys

from mcp import ClientSession, McpError, types
from mcp.client.streamable_http import streamablehttp_client


async def sample(context, params):
    content = types.TextContent(type="text", text="an idea")
    return types.CreateMessageResult(role="assistant", content=content, model="none")


async def drive(url: str) -> dict[str, object]:
    """Use every feature, and return what the client saw."""
    async with (
        streamablehttp_client(url) as (read_stream, write_stream, _),
        ClientSession(read_stream, write_stream, sampling_callback=sample) as session,
    ):
        protocol = (await session.initialize()).protocolVersion

        async def call(name, **arguments):
            result = await session.call_tool(name, arguments)
            return [result.isError, [block.text for block in result.content]]

        tools = {tool.name: sorted(tool.model_dump(exclude_none=True)) for tool in (await session.list_tools()).tools}
        saw = {
            "protocol": protocol,
            "add": tools["add"],
            "sum": await call("add", numbers=[1, 2]),
            "found": await call("find"),
            "asked": await call("ask"),
            "thought": await call("think"),
            "prompt": (await session.get_prompt("guide")).messages[0].content.text,
            "resource": (await session.read_resource("docs://guide")).contents[0].text,
        }
        try:
            await session.get_prompt("nothing")
        except McpError as error:
            saw["unknown"] = error.error.code
        return saw


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(drive(sys.argv[1]))))
