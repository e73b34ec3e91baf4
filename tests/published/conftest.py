"""The servers of the file that a module names, and two replicas that serve them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.published.published import Tried, calls_of, entries_of, tried
from tests.upstreams.site import Site


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Test each server of the file, or each tool that is called."""
    if "name" not in metafunc.fixturenames:
        return
    names = list(entries_of(metafunc.module.FILE))
    if "tool" in metafunc.fixturenames:
        metafunc.parametrize(("name", "tool"), [(name, tool) for name in names for tool in calls_of(name).calls])
    else:
        metafunc.parametrize("name", names)


@pytest.fixture(scope="module")
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tried]:
    """The servers, each called directly."""
    file = request.module.FILE
    with tried(file, tmp_path_factory.mktemp(file)) as servers:
        yield servers


@pytest.fixture(scope="module")
def site(servers: Tried, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("site"), servers.entries) as site:
        site.wait_listed()
        yield site
