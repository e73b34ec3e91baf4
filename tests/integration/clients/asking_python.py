"""A server that asks its user, of the package in its environment: fastmcp, or the `mcp` SDK 1.x or 2.

Usage: python -m tests.integration.clients.asking_python PORT. With the port `stdio`, it is a server on its standard
streams. `server` is an object for the entry `python`. The end of each question is noted in TEST_DIRECTORY.
"""

# mypy: ignore-errors
# The type checker sees other versions, which are installed in its environment.

import asyncio
import json
import os
import sys
from pathlib import Path

from pydantic import BaseModel

try:
    import fastmcp
except ImportError:
    fastmcp = None
try:
    from mcp import types
    from mcp.server.fastmcp import Context, FastMCP

    PACKAGE = "python1"
except ImportError:
    import mcp_types as types
    from mcp.server.mcpserver import Context, MCPServer

    PACKAGE = "python2"
if fastmcp is not None:
    from fastmcp import Context

    PACKAGE = "fastmcp"

NOTES = Path(os.environ.get("TEST_DIRECTORY", "."))
PORT = sys.argv[1] if __name__ == "__main__" else "0"
PROPERTIES = {"type": "object", "properties": {"sure": {"type": "string"}}, "required": ["sure"]}


class Sure(BaseModel):
    """The answer to a question."""

    sure: str


def made():
    """Return a server without tools."""
    if PACKAGE == "fastmcp":
        return fastmcp.FastMCP("asking")
    if PACKAGE == "python2":
        return MCPServer("asking", log_level="ERROR")
    return FastMCP("asking", host="127.0.0.1", port=int(PORT) if PORT.isdecimal() else 0, log_level="ERROR")


server = made()


def note(who, question, **came):
    """Note how a question of a call has ended."""
    with (NOTES / "asked").open("a") as notes:
        notes.write(json.dumps({"who": who, "question": question, **came}) + "\n")


async def asked(ctx, who, question, *, aside=False):
    """Ask, and note the answer. `aside`: in a way that does not name the call."""
    try:
        if aside:
            answer = await ctx.session.elicit_form(question, PROPERTIES)
            sure = (answer.content or {}).get("sure")
        else:
            answer = await ctx.elicit(question, Sure)
            sure = getattr(getattr(answer, "data", None), "sure", None)
    except Exception as problem:
        note(who, question, problem=str(problem))
        raise
    except asyncio.CancelledError:
        note(who, question, problem="cancelled")
        raise
    note(who, question, action=answer.action, sure=sure)
    return sure


@server.tool()
async def delete(who: str, ctx: Context, aside: bool = False) -> str:
    """Ask for consent to delete some files, then for many more."""
    for files in (3, 300):
        await asked(ctx, who, f"Delete {files} files of {who}?", aside=aside)
    return "deleted"


@server.tool()
async def several(who: str, ctx: Context) -> str:
    """Ask several questions at once."""
    await asyncio.gather(*(asked(ctx, who, f"Delete {files} files of {who}?") for files in (3, 30, 300)))
    return "deleted"


@server.tool()
async def report(who: str, ctx: Context) -> str:
    """Report progress before and after a question."""
    await ctx.report_progress(1, 2, "before")
    await asked(ctx, who, f"Delete 3 files of {who}?")
    await ctx.report_progress(2, 2, "after")
    return "deleted"


@server.tool()
async def sample(who: str, ctx: Context, with_tools: bool = False) -> str:
    """Ask the model of the client for two titles."""
    schema = {"inputSchema" if PACKAGE == "python1" else "input_schema": {"type": "object"}}
    tools = {"tools": [types.Tool(name="search", **schema)]} if with_tools else {}
    for number in (1, 2):
        question = f"Title {number} for {who}?"
        content = types.TextContent(type="text", text=question)
        answer = await ctx.session.create_message(
            [types.SamplingMessage(role="user", content=content)],
            max_tokens=10,
            related_request_id=ctx.request_id,
            **tools,
        )
        said = answer.content[0] if isinstance(answer.content, list) else answer.content
        note(who, question, action=answer.role, sure=getattr(said, "text", None) or getattr(said, "name", None))
    return "titled"


@server.tool()
async def visit(who: str, ctx: Context) -> str:
    """Send the user to two addresses."""
    for number in (1, 2):
        question = f"Visit {number}, {who}?"
        answer = await ctx.session.elicit_url(
            question, f"https://example.com/{number}", f"{who}-{number}", related_request_id=ctx.request_id
        )
        note(who, question, action=answer.action)
    return "visited"


@server.tool()
def echo(text: str) -> str:
    """Say the text again."""
    return text


if __name__ == "__main__":
    if PORT == "stdio":
        server.run("stdio", **({"show_banner": False} if PACKAGE == "fastmcp" else {}))
    elif PACKAGE == "fastmcp":
        server.run("http", host="127.0.0.1", port=int(PORT), show_banner=False, log_level="error")
    elif PACKAGE == "python2":
        server.run("streamable-http", host="127.0.0.1", port=int(PORT))
    else:
        server.run("streamable-http")
