"""A server on standard streams whose tool has a large result. It answers one request after the other.

It uses only the standard library, since it runs alone: `python large.py BYTES`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

RESULT = b'{"content":[{"type":"text","text":"' + b"x" * int(sys.argv[1]) + "\N{GRINNING FACE}".encode() + b'"}]}'
"""One character in its text makes all others take four bytes each."""


def result_of(method: str, params: Any) -> bytes:
    if method == "tools/call":
        return RESULT
    if method == "tools/list":
        return json.dumps({"tools": [{"name": "large", "inputSchema": {"type": "object"}}]}).encode()
    about = {"name": "large", "version": "1"}
    version = params.get("protocolVersion")
    return json.dumps({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}).encode()


for line in sys.stdin.buffer:
    message = json.loads(line)
    if "id" in message:
        body = result_of(message["method"], message.get("params", {}))
        sys.stdout.buffer.write(b'{"jsonrpc":"2.0","id":%d,"result":' % message["id"] + body + b"}\n")
        sys.stdout.buffer.flush()
