"""A host application that a server runs in several processes behind one port, and clients with sessions."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import httpx
import httpx2
import mcp_types
import msgspec
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from loadtest.cluster import REPOSITORY, new_key, wait_until
from loadtest.cluster.common import LoggedProcess
from tests.integration.clients.sdk_client import text_of
from tests.integration.raw import headers_of, request

APP: Final = "tests.process.host:app"
PEERS: Final = REPOSITORY / ".venvs/servers/bin/python"
"""The Python of the environment with the servers that are not in our own."""

SECONDS: Final = 60.0
ANSWERS: Final = {"name": "Ada", "mood": "well"}
DONE: Final = "Hello Ada, who is well"
LATE: Final = "No answer came in time; call again"

SERVERS: Final[Mapping[str, Callable[[str, str], list[Path | str]]]] = {
    "uvicorn": lambda port, count: [sys.executable, "-m", "uvicorn", "--port", port, "--workers", count, APP],
    "gunicorn": lambda port, count: [
        *(PEERS, "-m", "gunicorn", "--bind", f"127.0.0.1:{port}", "--workers", count),
        *("--worker-class", "uvicorn.workers.UvicornWorker", "--graceful-timeout", "5", APP),
    ],
    "granian": lambda port, count: [
        *(PEERS, "-m", "granian", "--interface", "asgi", "--port", port, "--workers", count, APP)
    ],
}
"""The command line of each server, by its port and the number of processes."""


def folders(directory: Path) -> list[Path]:
    """Return the folders with sockets that a server made."""
    return list(directory.glob("sealed-gateway-*"))


def too_long(directory: Path) -> str:
    """Make a folder whose path leaves no room for the names of sockets."""
    folder = directory / ("x" * 100)
    folder.mkdir()
    return str(folder)


class Workers(LoggedProcess):
    """A server with several processes.

    Args:
        directory: where its log goes. It is also the parent of the folder with the sockets, so its path is short.
        server: one of `SERVERS`.
        count: how many processes.
        environ: settings.
    """

    def __init__(self, directory: Path, server: str, count: int, **environ: str) -> None:
        own = {"GATEWAY_SEAL_KEYS": new_key(), "GATEWAY_AUDIENCE": "tests", "GATEWAY_AUTH": "none"}
        runtime = {"TEST_HOST_SERVES": "1", "XDG_RUNTIME_DIR": str(directory)}
        super().__init__(server, {**own, **runtime, **environ}, directory / "server.log")
        self._port = str(self._keep_port())
        self.count = count
        self.url = f"http://127.0.0.1:{self._port}/tools/mcp"

    def _command(self) -> Sequence[str]:
        return [str(part) for part in SERVERS[self.name](self._port, str(self.count))]

    def wait_ready(self) -> None:
        """Wait until each process has answered."""
        seen: set[str] = set()

        def all_answered() -> bool:
            ping = request("tools/list")
            with contextlib.suppress(httpx.TransportError):
                answer = httpx.post(self.url, content=msgspec.json.encode(ping), headers=headers_of(ping), timeout=5)
                seen.add(answer.headers.get("x-gateway-replica", ""))
            return len(seen - {""}) == self.count

        wait_until(all_answered, "each process answers")

    def __enter__(self) -> Self:
        """Start it."""
        self.start()
        self.wait_ready()
        return self

    def __exit__(self, *_: object) -> None:
        """End all of its processes."""
        self.stop()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


class Users:
    """Clients of 2025-11-25 that call a tool which asks twice.

    Attributes:
        texts: what their calls returned, and how often.
        crossed: how many answers reached another process than the one that asked.
        refused: how many answers got an error instead of 202.
    """

    def __init__(self) -> None:
        self.texts: Counter[str] = Counter()
        self.crossed = 0
        self.refused = 0

    async def call(self, url: str, *, users: int, calls: int) -> Self:
        """Let some users make some calls each, one after the other."""
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*(self._one(url, calls) for _ in range(users)))
        return self

    async def _one(self, url: str, calls: int) -> None:
        asker = ""

        async def note(response: httpx2.Response) -> None:
            nonlocal asker
            message = msgspec.json.decode(response.request.content)
            replica = response.headers["x-gateway-replica"]
            if message.get("method") == "tools/call":
                asker = replica
            elif "method" not in message:
                self.crossed += replica != asker
                self.refused += response.status_code == 200

        async def answer(context: Any, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
            assert isinstance(params, mcp_types.ElicitRequestFormParams)
            (name,) = params.requested_schema["properties"]
            return mcp_types.ElicitResult(action="accept", content={name: ANSWERS[name]})

        # Without idle connections, each request may reach another process.
        limits = httpx2.Limits(max_keepalive_connections=0)
        async with (
            httpx2.AsyncClient(event_hooks={"response": [note]}, timeout=SECONDS, limits=limits) as http_client,
            Client(
                streamable_http_client(url, http_client=http_client), mode="legacy", elicitation_callback=answer
            ) as client,
        ):
            for _ in range(calls):
                self.texts[text_of(await client.call_tool("greet"))] += 1
