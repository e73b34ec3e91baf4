"""fastmcp's proxy in front of a server: stateless, plain JSON answers, no identity."""

from __future__ import annotations

import sys

from fastmcp import FastMCP  # type: ignore[import-not-found]  # lives in an environment of its own
from fastmcp.server import create_proxy  # type: ignore[import-not-found]  # likewise

from bench.peers.serving import serve

server = FastMCP("bench", version="1.0.0")
server.mount(create_proxy(sys.argv[2]), namespace="up")

if __name__ == "__main__":
    serve(server.http_app(path="/mcp", json_response=True, stateless_http=True))
