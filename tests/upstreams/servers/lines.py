"""A server on standard streams whose tool writes large lines that answer nothing, before it answers.

It uses only the standard library, since it runs alone: `python lines.py BYTES`.
"""

from __future__ import annotations

import json
import sys

TEXT = b"x" * int(sys.argv[1]) + "\N{GRINNING FACE}".encode()
"""One character in it makes all others take four bytes each."""

LINES = (
    b'{"jsonrpc":"2.0","method":"notifications/other","params":{"text":"' + TEXT + b'"}}\n',
    b'{"jsonrpc":"2.0","id":999999,"result":{"text":"' + TEXT + b'"}}\n',
    b'{"params":{"text":"' + TEXT + b'"},"jsonrpc":"2.0","method":"notifications/other"}\n',
)

for line in sys.stdin.buffer:
    message = json.loads(line)
    if "id" in message:
        result: dict[str, object] = {"tools": [{"name": "write", "inputSchema": {"type": "object"}}]}
        if message["method"] == "initialize":
            about = {"serverInfo": {"name": "lines", "version": "1"}, "capabilities": {"tools": {}}}
            result = {"protocolVersion": message["params"]["protocolVersion"], **about}
        elif message["method"] == "tools/call":
            sys.stdout.buffer.writelines(2 * LINES)
            result = {"content": []}
        sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode() + b"\n")
        sys.stdout.buffer.flush()
