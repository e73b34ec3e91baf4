"""A store of its own for each test, and the site around it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import pytest_runtest_makereport
from tests.storage.servers import Server
from tests.workers.site import Site

__all__ = ["pytest_runtest_makereport"]


@pytest.fixture
def server() -> Iterator[Server]:
    """A server whose every write is on disk before it is acknowledged. Its path leaves room for a socket's name."""
    directory = Path(tempfile.mkdtemp(prefix="gw-"))
    server = Server("redis", directory, "--appendonly", "yes", "--appendfsync", "always")
    server.start()
    yield server
    server.end()
    shutil.rmtree(directory)


@pytest.fixture
def start_site(server: Server, tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Start replicas, one unless named, with settings of the test's own."""
    sites: list[Site] = []

    def start(*replicas: str, **settings: str) -> Site:
        sites.append(Site(tmp_path, server, *replicas, **settings).__enter__())
        return sites[-1]

    yield start
    for site in sites:
        site.__exit__()


@pytest.fixture
def site(start_site: Callable[..., Site]) -> Site:
    """A replica with leases of 30 seconds, and no worker yet."""
    return start_site()
