"""An MCP server on standard streams that is as cheap as one in Python can be, to run as a child of the gateway.

Its tool echoes. The argument is the core that it runs on.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import msgspec

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOL = {"name": "echo", "description": "Say the text again.", "inputSchema": SCHEMA}


def result_of(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a request."""
    if method == "tools/call":
        return {"content": [{"type": "text", "text": params["arguments"]["text"]}]}
    if method == "initialize":
        info = {"name": "echo", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    return {"tools": [TOOL]}


def main() -> None:
    """Answer each line."""
    os.sched_setaffinity(0, {int(sys.argv[1])})
    out, decode, encode = sys.stdout.buffer, msgspec.json.decode, msgspec.json.encode
    for line in sys.stdin.buffer:
        message = decode(line)
        if "id" in message:
            result = result_of(message["method"], message.get("params", {}))
            out.write(encode({"jsonrpc": "2.0", "id": message["id"], "result": result}) + b"\n")
            out.flush()


if __name__ == "__main__":
    main()
