"""A site whose replicas and workers reach their store through a door, and the checks at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.chaos.door import Door
from tests.chaos.ground import Ground
from tests.storage.servers import Server
from tests.workers.conftest import pytest_runtest_makereport, server, start_site
from tests.workers.site import Site

__all__ = ["pytest_runtest_makereport", "server", "start_site"]

LEASE_SECONDS = 1


@pytest.fixture
def door(server: Server) -> Iterator[Door]:
    with Door(server) as door:
        yield door


@pytest.fixture
def start(start_site: Callable[..., Site], door: Door) -> Callable[..., Ground]:
    """Start replicas behind the door, one unless named."""

    def start(*replicas: str, **settings: str) -> Ground:
        given = {
            "GATEWAY_REDIS_URL": door.url,
            "GATEWAY_TOOLS": "tests.chaos.tools",
            "GATEWAY_TASK_LEASE_SECONDS": str(LEASE_SECONDS),
        }
        return Ground(start_site(*replicas, **{**given, **settings}), door)

    return start


@pytest.fixture
def ground(start: Callable[..., Ground]) -> Ground:
    """One replica and leases of a second."""
    return start()
