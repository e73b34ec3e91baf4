"""Two replicas whose tools require a scope, one whose release has no such tools, and users with any tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any, Protocol

import pytest

from gateway.auth.tokens import mint
from loadtest.cluster import Replica
from tests.integration.conftest import pytest_runtest_makereport
from tests.storage.servers import Server
from tests.wires.draft.client import DraftClient
from tests.wires.draft.conftest import gate, name, redis
from tests.wires.draft.deployment import AUDIENCE, SECRET, Deployment
from tests.wires.legacy.speaking import LEGACY

__all__ = ["gate", "name", "pytest_runtest_makereport", "redis"]

SECONDS = 15.0
"""The time limit for everything; a stream that does not end fails its test after this."""


class ClientOf(Protocol):
    """Makes clients of the test's user; see `client_of`."""

    def __call__(
        self,
        *replicas: str,
        scopes: Sequence[str] = ("admin",),
        seconds: int = 600,
        like: DraftClient | None = None,
        version: str | None = None,
    ) -> DraftClient: ...


@pytest.fixture(scope="session")
def fleet(redis: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The replicas r1 and r2 with the tools, r3 without them, and a worker with them."""
    settings = {"GATEWAY_TOOLS": "tests.calls.authority.tools", "GATEWAY_JWT_LEEWAY_SECONDS": "0"}
    own = {"r1": {}, "r2": {}, "r3": {"GATEWAY_TOOLS": "tests.wires.draft.tools"}}
    with Deployment(tmp_path_factory.mktemp("authority"), redis, settings, own) as fleet:
        yield fleet


@pytest.fixture
async def client_of(fleet: Deployment, name: str) -> AsyncIterator[ClientOf]:
    """Make clients of one user, each with its own token.

    The clients send to `replicas`, by default r1. With `like`, a client continues the session of that one.
    """
    async with AsyncExitStack() as stack:
        clients: list[DraftClient] = []

        def make(
            *replicas: str,
            scopes: Sequence[str] = ("admin",),
            seconds: int = 600,
            like: DraftClient | None = None,
            version: str | None = None,
        ) -> DraftClient:
            urls = [replica.url for replica in fleet.replicas if replica.name in (replicas or ("r1",))]
            token = mint(SECRET, name, AUDIENCE, scopes=scopes, ttl_seconds=seconds)
            client = DraftClient(urls, token=token, seconds=SECONDS, longest_poll_seconds=0.02)
            headers = client.transport.headers
            if version is not None:
                headers["MCP-Protocol-Version"] = version
            if like is not None:
                for header in ("MCP-Protocol-Version", "Mcp-Session-Id"):
                    headers[header] = like.transport.headers[header]
            clients.append(client)
            return client

        yield make
        for client in clients:
            await stack.enter_async_context(client)


@pytest.fixture
async def user(client_of: ClientOf) -> DraftClient:
    """A client with the scope and a session of 2025-11-25 at r1."""
    client = client_of(version=LEGACY)
    await client.initialize(LEGACY)
    return client


def replica_of(fleet: Deployment, name: str) -> Replica:
    """Return a replica by its name."""
    return next(replica for replica in fleet.replicas if replica.name == name)


def challenge_of(client: DraftClient) -> str:
    """Return the challenge in the last answer, "" for none."""
    head: Any = [seen for seen in client.log if seen.kind == "head"][-1]
    challenge: str = head.headers.get("www-authenticate", "")
    return challenge
