"""A caller whose calls fail, hang, are huge and given up: one of each kind at a time, again and again, until stopped.

The arguments are the port of the gateway, the prefix of the upstream's tools, and the caller's token.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys

import uvloop

from bench.cases import call
from bench.peers.upstream_tools import FAILS, HANGS, HUGE

PATIENCE_SECONDS = 0.05
"""When a call is given up."""

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")


async def finish(port: int, request: bytes) -> None:
    """Send a request again and again on one connection, each time after the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while True:
        writer.write(request)
        length = _LENGTH.search(await reader.readuntil(b"\r\n\r\n"))
        await reader.readexactly(0 if length is None else int(length[1]))


async def give_up(port: int, request: bytes) -> None:
    """Send a request again and again, each time on another connection, which is closed before there is an answer."""
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                await reader.read(1)
        writer.close()


async def main(port: int, prefix: str, token: str) -> None:
    """Do all of it at once."""
    requests = {
        name: call(port, number, f"{prefix}__{name}", {"text": name}, token=token)
        for number, name in enumerate((FAILS, HANGS, HUGE))
    }
    await asyncio.gather(
        *(finish(port, request) for request in requests.values()),
        give_up(port, requests[HANGS]),
    )


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
