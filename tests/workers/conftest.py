"""A store and the site around it. Tests share replicas where possible, and each has its own workers."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.integration.conftest import pytest_runtest_makereport
from tests.storage.servers import Server
from tests.workers.site import Site

__all__ = ["pytest_runtest_makereport"]


@contextmanager
def durable_server() -> Iterator[Server]:
    """Start a server that acknowledges a write only once it is on disk."""
    directory = Path(tempfile.mkdtemp(prefix="gw-"))  # leaves room for the name of a socket
    server = Server("redis", directory, "--appendonly", "yes", "--appendfsync", "always")
    server.start()
    try:
        yield server
    finally:
        server.end()
        shutil.rmtree(directory)


@pytest.fixture
def server() -> Iterator[Server]:
    """A store that a test may stop or cut off."""
    with durable_server() as server:
        yield server


@pytest.fixture
def start_site(server: Server, tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Start replicas, one by default, with a store and settings for one test."""
    with ExitStack() as stack:
        yield lambda *replicas, **settings: stack.enter_context(Site(tmp_path, server, *replicas, **settings))


@pytest.fixture(scope="session")
def served() -> Iterator[Site]:
    """A replica with a store, for all tests that leave both running."""
    with serving() as served:
        yield served


@contextmanager
def serving(*replicas: str, **settings: str) -> Iterator[Site]:
    """Start replicas, one by default, with a store, for tests that use them one after the other."""
    with durable_server() as server, Site(server.directory, server, *replicas, **settings) as served:
        yield served


@pytest.fixture
def join(tmp_path: Path) -> Iterator[Callable[[Site], Site]]:
    """Return a function that gives a test the replicas and the emptied store of a site, with new workers and files."""
    with ExitStack() as stack:

        def join(served: Site) -> Site:
            served.forget_tasks()
            return stack.enter_context(served.joined(tmp_path))

        yield join


@pytest.fixture
def site(served: Site, join: Callable[[Site], Site]) -> Site:
    """A replica, no task, and no worker yet; leases of 30 seconds."""
    return join(served)


@pytest.fixture
def own_site(start_site: Callable[..., Site]) -> Site:
    """The same with a store that the test may stop."""
    return start_site()
