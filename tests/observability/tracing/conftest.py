"""Two replicas and a worker that send their traces to a collector."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.conftest import pytest_runtest_makereport
from tests.observability.tracing.collector import Collector
from tests.storage.servers import Server
from tests.wires.draft.conftest import ClientOf, client_of, name, redis
from tests.wires.draft.deployment import Deployment

__all__ = ["ClientOf", "client_of", "name", "pytest_runtest_makereport", "redis"]

TOOLS = {"GATEWAY_TOOLS": "tests.observability.tracing.tools"}


@pytest.fixture(scope="session")
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@pytest.fixture(scope="session")
def fleet(redis: Server, collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Two replicas, r1 and r2, and a worker, w1."""
    with Deployment(tmp_path_factory.mktemp("traced"), redis, {**TOOLS, **collector.environ}) as fleet:
        yield fleet
