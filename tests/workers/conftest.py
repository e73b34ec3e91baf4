"""A store of its own for each test, and the site around it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.storage.servers import Server
from tests.workers.site import Site

SHOWN_CHARACTERS = 3000
_live: list[Site] = []


@pytest.fixture
def server() -> Iterator[Server]:
    """A server whose every write is on disk before it is acknowledged. Its path leaves room for a socket's name."""
    directory = Path(tempfile.mkdtemp(prefix="gw-"))
    server = Server("redis", directory, "--appendonly", "yes", "--appendfsync", "always")
    server.start()
    yield server
    server.kill()
    shutil.rmtree(directory)


@pytest.fixture
def start_site(server: Server, tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Start replicas, one unless named, with settings of the test's own."""
    sites: list[Site] = []

    def start(*replicas: str, **settings: str) -> Site:
        sites.append(Site(tmp_path, server, *replicas, **settings).__enter__())
        _live.append(sites[-1])
        return sites[-1]

    yield start
    for site in sites:
        _live.remove(site)
        site.__exit__()


@pytest.fixture
def site(start_site: Callable[..., Site]) -> Site:
    """A replica with leases of 30 seconds, and no worker yet."""
    return start_site()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what replicas and workers logged to the report of a failed test."""
    report = yield
    if report.failed:
        for site in _live:
            report.sections += [
                (f"log of worker {worker.name}", worker.log_text()[-SHOWN_CHARACTERS:]) for worker in site.workers
            ]
            report.sections += [(f"log of {name}", text[-SHOWN_CHARACTERS:]) for name, text in site.fleet.logs()]
    return report
