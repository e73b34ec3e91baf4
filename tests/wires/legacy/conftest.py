"""A deployment of two replicas and a worker, and sessions of the 2025-11-25 wire with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, TypeAlias

import pytest

from tests.integration.conftest import pytest_runtest_makereport
from tests.storage.servers import Server
from tests.wires.draft.client import DraftClient
from tests.wires.draft.conftest import ClientOf, client_of, name, redis
from tests.wires.draft.deployment import Deployment
from tests.wires.legacy.speaking import LEGACY, speak

__all__ = ["client_of", "name", "pytest_runtest_makereport", "redis"]

Begin: TypeAlias = Callable[..., Awaitable[DraftClient]]

TOOLS: Final = (
    "tests.wires.draft.tools,tests.wires.draft.task_tools,tests.wires.legacy.tools,tests.wires.legacy.working_tools,"
    "tests.wires.relays"
)


@pytest.fixture(scope="session")
def fleet(redis: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Two replicas, r1 and r2, and a worker, w1, for all tests. A test that stops one of them starts it again."""
    with Deployment(tmp_path_factory.mktemp("legacy"), redis, {"GATEWAY_TOOLS": TOOLS}) as fleet:
        yield fleet


@pytest.fixture
async def begin(client_of: ClientOf, name: str) -> Begin:
    """Begin sessions; see `begin`."""

    async def begin(principal: str = name, version: str = LEGACY, **options: Any) -> DraftClient:
        """Return a client with a session; without a principal, of a user of the test's own."""
        return await speak(client_of(principal, **options), version)

    return begin


@pytest.fixture
async def user(begin: Begin) -> DraftClient:
    """A client with a session of 2025-11-25, which turns to both replicas in turn."""
    return await begin()
