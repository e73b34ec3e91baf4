"""A store of its own for every test on each kind of server, and a check that no key is left without a lifetime."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.storage.deployments import Deployment, keys_without_lifetime, numbers
from tests.storage.servers import SERVERS, Server, make_cluster


@pytest.fixture(scope="session")
def short_directory() -> Iterator[Path]:
    """A directory whose path is short enough for a socket."""
    directory = Path(tempfile.mkdtemp(prefix="gw-"))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="session", params=SERVERS)
def server(request: pytest.FixtureRequest, short_directory: Path) -> Iterator[Server]:
    """A server for all tests that need no special setup."""
    directory = short_directory / request.param
    directory.mkdir()
    server = Server(request.param, directory)
    server.start()
    yield server
    server.end()


@pytest.fixture
def own_server(short_directory: Path) -> Iterator[Server]:
    """A server that a test may stop, fill and restart; every write is on disk before it is acknowledged."""
    directory = short_directory / f"own-{next(numbers)}"
    directory.mkdir()
    server = Server("redis", directory, "--appendonly", "yes", "--appendfsync", "always")
    server.start()
    yield server
    server.end()


@pytest.fixture(scope="session")
def cluster(short_directory: Path) -> Iterator[str]:
    """The URL of a cluster of three servers."""
    directory = short_directory / "cluster"
    directory.mkdir()
    url, servers = make_cluster(directory)
    yield url
    for server in servers:
        server.end()


@pytest.fixture
async def here(server: Server) -> AsyncIterator[Deployment]:
    """A deployment on each kind of server. Fails the test that leaves a key without a lifetime."""
    deployment = Deployment(server.url)
    yield deployment
    await deployment.aclose()
    assert keys_without_lifetime(server.url, deployment.keys.prefix) == []
