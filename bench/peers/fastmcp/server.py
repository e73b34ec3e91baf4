"""fastmcp's server with tasks on Redis, set up for speed: stateless, plain JSON answers, no identity.

Its worker is part of the process, as fastmcp's default is. It runs as many tasks at once as a worker of ours does.
"""

from __future__ import annotations

import sys

from fastmcp import FastMCP  # type: ignore[import-not-found]  # lives in an environment of its own
from fastmcp_tasks import TasksExtension  # type: ignore[import-not-found]  # likewise

from bench.peers.serving import serve

CONCURRENCY = 32

server = FastMCP("bench", version="1.0.0")
server.add_extension(TasksExtension(url=sys.argv[2], concurrency=CONCURRENCY))


@server.tool(task=True, output_schema=None)  # type: ignore[untyped-decorator]  # seen from outside its environment
async def repeat(text: str) -> str:
    """Say the text again."""
    return text


if __name__ == "__main__":
    serve(server.http_app(path="/mcp", json_response=True, stateless_http=True))
