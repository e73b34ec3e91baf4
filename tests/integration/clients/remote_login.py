"""Calls tools through `mcp-remote`, as a desktop client without HTTP does, and prints what it saw as one JSON object.

Usage: remote_login.py NODE_ENVIRONMENT URL TOOL…
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import sys
from pathlib import Path
from typing import Any

import mcp_types
from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.stdio import stdio_client

from tests.docs.markdown import blocks_of
from tests.integration.clients.sdk_client import text_of

PROGRAM = "mcp-remote"

CALLBACK_PORTS = range(20_000, 30_000)
"""Ports that the system gives to no connection, so that `mcp-remote` finds the same one free at each login."""


def documented(url: str) -> list[str]:
    """Return the options of `mcp-remote` from the documentation, with this URL instead of its own, and a port."""
    (block,) = [block for block in blocks_of("docs/start/clients.md") if block.language == "json"]
    (server,) = json.loads(block.text)["mcpServers"].values()
    program, *options = server["args"]
    assert (server["command"], program) == ("npx", PROGRAM)
    (at,) = [at for at, option in enumerate(options) if option.startswith("https://")]
    return [*options[:at], url, str(free_port()), *options[at + 1 :]]


def free_port() -> int:
    """Return a free port for the end of a login. The one that `mcp-remote` derives from the URL may be taken."""
    while True:
        with socket.socket() as candidate, contextlib.suppress(OSError):
            candidate.bind(("127.0.0.1", random.choice(CALLBACK_PORTS)))
            return int(candidate.getsockname()[1])


async def drive(environment: Path, url: str, tools: list[str]) -> dict[str, Any]:
    """Let `mcp-remote` log in as documented, and return what its client saw."""
    questions: list[str] = []

    async def answer(context: Any, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
        questions.append(params.message)
        return mcp_types.ElicitResult(action="accept", content={"topic": "sailing"})

    program = environment / "node_modules" / PROGRAM / "dist" / "proxy.js"
    node = str(environment / "bin" / "node")
    command = StdioServerParameters(command=node, args=[str(program), *documented(url)], env=dict(os.environ))
    async with Client(stdio_client(command), elicitation_callback=answer, mode="legacy") as client:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        results = [text_of(await client.call_tool(tool)) for tool in tools]
    return {"listed": listed, "results": results, "questions": questions}


if __name__ == "__main__":
    saw = asyncio.run(drive(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
    sys.stdout.write(json.dumps(saw) + "\n")
