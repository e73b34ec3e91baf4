"""Two replicas behind a proxy, the real client, and the records of tools."""

from __future__ import annotations

import contextlib
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Self

import httpx2
import mcp_types
from mcp import MCPError
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from loadtest.cluster import Replica, new_key, wait_until
from loadtest.cluster.common import HOST
from tests.proxies.front import Front

SECONDS = 60.0
TOKEN_SECRET = "a secret that only these tests have, 32 bytes or more"
NOTICE_SECONDS = 3


class Site:
    """Two replicas, each with a real address that refuses connections while the replica is down."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        environ = {
            "GATEWAY_TOOLS": "tests.proxies.tools",
            "GATEWAY_SEAL_KEYS": new_key(),
            "GATEWAY_AUDIENCE": "proxies",
            "GATEWAY_AUTH": "none",
            "GATEWAY_ALLOWED_HOSTS": HOST,
            "GATEWAY_TRUSTED_PROXIES": HOST,
            "GATEWAY_DRAIN_NOTICE_SECONDS": str(NOTICE_SECONDS),
            "TEST_DIRECTORY": str(directory),
        }
        module = "tests.proxies.impatient"
        self.replicas = [
            Replica(name, environ, directory / f"{name}.log", module=module, hold=False) for name in ("r1", "r2")
        ]

    def __enter__(self) -> Self:
        """Start the replicas."""
        for replica in self.replicas:
            replica.start()
        for replica in self.replicas:
            replica.wait_ready()
        return self

    def __exit__(self, *_: object) -> None:
        """End them."""
        for replica in self.replicas:
            replica.stop()

    def __getitem__(self, name: str) -> Replica:
        """Return a replica by its name."""
        return next(replica for replica in self.replicas if replica.name == name)

    def complete(self) -> None:
        """Restart the replicas that an earlier test has stopped."""
        for replica in self.replicas:
            if not replica.alive:
                replica.restart()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where the replicas are."""
        return [replica.address for replica in self.replicas]

    def open(self, gate: str) -> None:
        """Let the tools that wait for a gate continue."""
        (self.directory / gate).touch()

    def runs(self) -> dict[str, list[str]]:
        """Return the replicas that have run a call, by its name."""
        path = self.directory / "runs"
        found: dict[str, list[str]] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            name, replica = line.split()
            found.setdefault(name, []).append(replica)
        return found

    def holder(self, name: str) -> Replica:
        """Wait until a call has begun, and return the replica that runs it."""
        wait_until(lambda: name in self.runs(), f"{name} to begin")
        return self[self.runs()[name][0]]


class User:
    """The real client, connected.

    Attributes:
        client: the client.
        legs: the replicas that have answered its requests, in order; "" for answers of the proxy itself.
        versions: the versions of HTTP of these answers.
    """

    def __init__(self) -> None:
        self.client: Client
        self.legs: list[str] = []
        self.versions: Counter[str] = Counter()

    async def note(self, response: httpx2.Response) -> None:
        """Record which replica answered."""
        self.legs.append(response.headers.get("x-gateway-replica", ""))
        self.versions[response.http_version] += 1

    async def call(self, tool: str, **arguments: Any) -> str:
        """Call a tool, and return its text; for an error, it begins with `error` and the code."""
        try:
            result = await self.client.call_tool(tool, arguments)
        except MCPError as error:
            return f"error {error.code}: {error}"
        assert isinstance(result, mcp_types.CallToolResult)
        (block,) = result.content
        assert isinstance(block, mcp_types.TextContent)
        return f"error: {block.text}" if result.is_error else block.text


@contextlib.asynccontextmanager
async def connect(
    front: Front,
    *,
    session: bool = False,
    http2: bool = False,
    before_answer: Callable[[], Awaitable[None]] | None = None,
) -> AsyncIterator[User]:
    """Connect the real client.

    Args:
        front: the proxy.
        session: whether it opens a session (2025-11-25).
        http2: whether it speaks HTTP/2.
        before_answer: awaited before each question is answered.
    """
    user = User()

    async def answer(context: object, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
        if before_answer is not None:
            await before_answer()
        return mcp_types.ElicitResult(action="accept", content={"value": params.message.removeprefix("The ")})

    verify: ssl.SSLContext | bool = False
    if front.certificate is not None:
        verify = ssl.create_default_context(cafile=str(front.certificate))
    async with (
        httpx2.AsyncClient(
            event_hooks={"response": [user.note]}, timeout=SECONDS, trust_env=False, verify=verify, http2=http2
        ) as http,
        Client(
            streamable_http_client(front.url, http_client=http),
            elicitation_callback=answer,
            mode="legacy" if session else "auto",
        ) as user.client,
    ):
        yield user
