"""The reference client, with a scripted server to talk to, and with a real deployment."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any, TypeAlias

import pytest

from tests.integration.conftest import pytest_runtest_makereport
from tests.storage.servers import Server, own_redis
from tests.wires.draft.client import DraftClient
from tests.wires.draft.deployment import Deployment
from tests.wires.draft.scripted_server import ScriptedServer

__all__ = ["pytest_runtest_makereport"]

ClientOf: TypeAlias = Callable[..., DraftClient]

_NUMBERS = itertools.count(1)


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as server:
        yield server


@pytest.fixture
async def client(server: ScriptedServer) -> AsyncIterator[DraftClient]:
    async with DraftClient(server.urls, longest_poll_seconds=0.01) as client:
        yield client


@pytest.fixture(scope="session")
def redis() -> Iterator[Server]:
    with own_redis() as server:
        yield server


@pytest.fixture(scope="session")
def fleet(redis: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Two replicas, r1 and r2, and a worker, w1, for all tests. A test that stops one of them starts it again."""
    with Deployment(tmp_path_factory.mktemp("draft"), redis) as fleet:
        yield fleet


@pytest.fixture(scope="session")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Two replicas of the demo, `old` of release 1 and `new` of release 2, without a store.

    For them any wait is too long: where somebody waits, calls are handed on at their checkpoints.
    """
    settings = {"GATEWAY_TOOLS": "gateway.demo", "GATEWAY_QUEUE_TARGET_MS": "1", "GATEWAY_MAX_INFLIGHT": "64"}
    own = {"old": {"GATEWAY_DEMO_RELEASE": "1"}, "new": {"GATEWAY_DEMO_RELEASE": "2"}}
    with Deployment(tmp_path_factory.mktemp("releases"), None, settings, own) as releases:
        yield releases


@pytest.fixture
def name() -> str:
    """A name of this test's own, for users, gates and notes that no other test has."""
    return f"test-{next(_NUMBERS)}"


@pytest.fixture
def gate(name: str) -> str:
    """A gate of this test's own."""
    return f"gate-{name}"


@pytest.fixture
async def client_of(fleet: Deployment) -> AsyncIterator[ClientOf]:
    """Make clients of the fleet, which are closed after the test; see `Deployment.client`."""
    async with AsyncExitStack() as stack:

        def client_of(principal: str, **options: Any) -> DraftClient:
            client = fleet.client(principal, **options)
            stack.push_async_callback(client.transport.aclose)
            return client

        yield client_of


@pytest.fixture
async def user(client_of: ClientOf, name: str) -> DraftClient:
    """A client of a user who has no tasks yet, without a session."""
    return client_of(name)
