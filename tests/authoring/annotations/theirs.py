"""Print what the official SDK and fastmcp do with each collected annotation that needs no class of their own.

Usage: python -m tests.authoring.annotations.theirs >tests/authoring/annotations/theirs.json, in an environment with
both libraries: `.venvs/fastmcp`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from fastmcp import Client as FastMCPClient  # type: ignore[import-not-found]  # in its own environment
from fastmcp import Context as FastMCPContext
from fastmcp import FastMCP
from mcp.client import Client
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import ElicitResult

from tests.authoring.annotations.kinds import (
    Entry,
    argument_for,
    asked_for,
    entries,
    evaluated,
    fitting,
    function_with,
    plain,
    shown,
)


async def main() -> None:
    """Print a JSON object: by kind and annotation, what each library does, or what both do alike."""
    logging.disable()
    told: dict[str, dict[str, Any]] = {}
    for entry in entries():
        try:
            evaluated(entry.annotation)
        except (NameError, SyntaxError):
            continue
        sdk = await _attempt(_in_sdk, entry)
        fastmcp = await _attempt(_in_fastmcp, entry)
        told.setdefault(entry.kind, {})[entry.annotation] = (
            {"both": sdk} if sdk == fastmcp else {"mcp": sdk, "fastmcp": fastmcp}
        )
    sys.stdout.write("{\n")
    for number, (kind, outcomes) in enumerate(told.items()):
        sys.stdout.write((",\n" if number else "") + json.dumps(kind) + ": {\n")
        sys.stdout.write(",\n".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in outcomes.items()))
        sys.stdout.write("\n}")
    sys.stdout.write("\n}\n")


async def _attempt(serve: Callable[[Entry], Awaitable[Any]], entry: Entry) -> Any:
    try:
        return await serve(entry)
    except Exception:  # noqa: BLE001 - why they refuse it does not matter
        return None


async def _in_sdk(entry: Entry) -> Any:
    server: Any = MCPServer("peer")
    forms: list[Any] = []

    async def answer(_context: Any, params: Any) -> Any:
        forms.append(params.requested_schema)
        return ElicitResult(action="accept", content=fitting(params.requested_schema))

    if entry.kind.startswith("question"):

        async def asks(ctx: Context) -> str:
            result: Any = await ctx.elicit("?", schema=asked_for(entry))
            return shown(result.data)

        asks.__annotations__["ctx"] = Context
        server.add_tool(asks, name="f")
    else:
        _register(server, entry)
    callback: Any = answer
    async with Client(server, mode="legacy", elicitation_callback=callback) as client:
        return await _seen(client, client, entry, forms)


async def _in_fastmcp(entry: Entry) -> Any:
    server = FastMCP("peer")
    forms: list[Any] = []

    async def answer(_message: Any, _type: Any, params: Any, _context: Any) -> Any:
        schema = params.requested_schema if hasattr(params, "requested_schema") else params.requestedSchema
        forms.append(schema)
        return fitting(schema)

    if entry.kind.startswith("question"):

        async def asks(ctx: FastMCPContext) -> str:
            result = await ctx.elicit("?", response_type=asked_for(entry))
            return shown(result.data)

        asks.__annotations__["ctx"] = FastMCPContext
        server.tool(asks, name="f")
    else:
        _register(server, entry)
    async with FastMCPClient(server, mode="legacy", elicitation_handler=answer) as client:
        return await _seen(client, client.session, entry, forms)


def _register(server: Any, entry: Entry) -> None:
    function = function_with(entry)
    if entry.kind.startswith("tool"):
        server.tool(name="f")(function)
    elif entry.kind.startswith("prompt"):
        server.prompt(name="f")(function)
    else:
        server.resource("peer://f/{x}" if entry.kind.endswith("parameter") else "peer://f")(function)


async def _seen(client: Any, session: Any, entry: Entry, forms: list[Any]) -> Any:
    arguments = {"x": argument_for(entry)} if entry.kind.endswith("parameter") else {}
    if entry.kind.startswith("prompt"):
        result = await session.get_prompt("f", arguments)
        return {"messages": [[each.role, each.content.text] for each in result.messages]}
    if entry.kind.startswith("resource"):
        result = await session.read_resource(f"peer://f/{arguments['x']}" if arguments else "peer://f")
        return {"contents": [getattr(part, "text", None) or part.blob for part in result.contents]}
    tools = await client.list_tools()
    [tool] = getattr(tools, "tools", tools)
    listed = tool.model_dump(mode="json", by_alias=True, exclude_none=True)
    called = (await session.call_tool("f", arguments)).model_dump(mode="json", by_alias=True)
    if called.get("isError"):
        return None
    texts = [block.get("text") for block in called["content"]]
    if entry.kind.startswith("question"):
        return {"form": plain(forms[0]), "texts": texts}
    if entry.kind == "tool parameter":
        return {"input": plain(listed["inputSchema"]), "texts": texts}
    return {"output": plain(listed.get("outputSchema")), "structured": called.get("structuredContent"), "texts": texts}


if __name__ == "__main__":
    asyncio.run(main())
