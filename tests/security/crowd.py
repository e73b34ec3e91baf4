"""One caller who sends many large requests at once, and another one who should hardly notice."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import re
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from gateway import tool
from gateway.auth.tokens import mint
from loadtest.cluster import Replica
from tests.security.costs import Sent, call
from tests.upstreams.servers.plain_http import Exchange, PlainServer

SECRET: Final = "a secret that only these tests know, 32 bytes"
AUDIENCE: Final = "tests"
HELD_SECONDS: Final = 2.0
"""How long a large request waits: for a tool that does nothing, or for an upstream."""

PAUSE_SECONDS: Final = 0.01
_PATIENCE_SECONDS: Final = 100.0
_OPENINGS: Final = 64
"""How many connections are opened at once. The listener's queue is not much longer."""


@tool
async def hold(value: Any) -> str:
    """Keep a value for a while, and do nothing."""
    await asyncio.sleep(HELD_SECONDS)
    return "held"


@tool
async def hold_decimals(value: list[Decimal]) -> str:
    """Keep decimals for a while."""
    await asyncio.sleep(HELD_SECONDS)
    return "held"


@tool
async def hold_queues(value: list[deque[int]]) -> str:
    """Keep queues for a while."""
    await asyncio.sleep(HELD_SECONDS)
    return "held"


class Row(BaseModel):
    """An object that takes much more memory than the JSON that it may be made of."""

    name: str = ""
    count: int = 0


@tool
async def hold_rows(value: list[Row]) -> str:
    """Keep rows for a while."""
    await asyncio.sleep(HELD_SECONDS)
    return "held"


@tool
async def echo(text: str) -> str:
    """Give the text back."""
    return text


@tool
async def stop_everything(pipe: str) -> str:
    """Stop the event loop until somebody has opened a named pipe to write, and has closed it again."""
    return Path(pipe).read_text()  # noqa: ASYNC240 - it is meant to block


@contextlib.contextmanager
def holding_upstream() -> Iterator[PlainServer]:
    """Serve a tool that answers late, without reading what it is sent."""

    async def answer(exchange: Exchange) -> None:
        asked = exchange.header("mcp-method")
        found = re.search(rb'"id":(\d+)', exchange.body[:200])
        if found is None or exchange.method != "POST":
            exchange.reply(405 if exchange.method != "POST" else 202)
            return
        if asked == "tools/call":
            await asyncio.sleep(HELD_SECONDS)
            result: dict[str, Any] = {"content": [{"type": "text", "text": "held"}]}
        elif asked == "tools/list":
            result = {"tools": [{"name": "hold", "inputSchema": {"type": "object"}}]}
        else:
            result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        lists = {} if asked == "tools/call" else {"ttlMs": 60_000, "cacheScope": "public"}
        exchange.json({"jsonrpc": "2.0", "id": int(found[1]), "result": {"resultType": "complete", **result, **lists}})

    with PlainServer(answer) as server:
        yield server


def peak_bytes(replica: Replica) -> int:
    """Return the most memory that a process has used so far."""
    (line,) = (line for line in Path(f"/proc/{replica.pid}/status").read_text().splitlines() if "VmHWM:" in line)
    return int(line.split()[1]) * 1024


@dataclass
class Storm:
    """The requests of one caller to a replica, and how they ended.

    Attributes:
        statuses: how many requests had each HTTP status; 0 for a connection that was closed.
    """

    replica: Replica
    user: str
    statuses: Counter[int] = field(default_factory=Counter)

    @contextlib.contextmanager
    def raging(self, sent: Sent, count: int) -> Iterator[threading.Event]:
        """Send a request so many times at once; the event is set when all are answered."""
        ended = threading.Event()
        message = self._message(sent)
        slots = threading.Semaphore(_OPENINGS)

        def send(_: int) -> None:
            with slots:
                connection = socket.create_connection(self.replica.address, timeout=_PATIENCE_SECONDS)
            with connection, contextlib.suppress(OSError):
                connection.sendall(message)
                self.statuses[int(connection.recv(64).split(b" ")[1])] += 1
                with contextlib.suppress(OSError):  # a refused body was not read to its end
                    while connection.recv(2**20):
                        pass
                return
            self.statuses[0] += 1

        def rage() -> None:
            with ThreadPoolExecutor(count) as pool:
                list(pool.map(send, range(count)))
            ended.set()

        thread = threading.Thread(target=rage, daemon=True)
        thread.start()
        yield ended
        thread.join()

    def _message(self, sent: Sent) -> bytes:
        return message_of(sent, {**headers_of(sent, self.user), "connection": "close"})


def message_of(sent: Sent, headers: Mapping[str, str]) -> bytes:
    """Return the bytes of a request."""
    headers = {**headers, "host": "localhost", "content-length": str(len(sent.body))}
    lines = ["POST /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + sent.body


def headers_of(sent: Sent, user: str) -> dict[str, str]:
    """Return the headers of a user's request."""
    return {**sent.headers, "authorization": f"Bearer {mint(SECRET, user, AUDIENCE)}"}


def times_of(replica: Replica, user: str, until: threading.Event) -> tuple[list[float], Counter[int]]:
    """Call a small tool again and again until something ends; return the times in seconds, and the HTTP statuses."""
    times: list[float] = []
    statuses: Counter[int] = Counter()
    sent = call("echo", '{"text":"hello"}')
    headers = headers_of(sent, user)
    connection = http.client.HTTPConnection(*replica.address, timeout=_PATIENCE_SECONDS)
    while not until.is_set():
        begun = time.monotonic()
        connection.request("POST", "/mcp", sent.body, headers)
        answer = connection.getresponse()
        answer.read()
        times.append(time.monotonic() - begun)
        statuses[answer.status] += 1
        time.sleep(PAUSE_SECONDS)
    connection.close()
    return times, statuses


def p99(times: list[float]) -> float:
    """Return the 99th percentile."""
    return sorted(times)[int(len(times) * 0.99)]
