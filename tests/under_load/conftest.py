"""Shows the logs of a cluster when a test fails."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from loadtest.cluster import Cluster

_SHOWN_CHARACTERS = 3000
_RUNNING = pytest.StashKey[list[Cluster]]()


@pytest.fixture
def start_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Start clusters whose tools record work in the test's directory, and whose replicas drain without a notice."""
    clusters = request.node.stash.setdefault(_RUNNING, [])
    with ExitStack() as stack:

        def start(environ: dict[str, str] | None = None, **options: Any) -> Cluster:
            settings = {"TEST_DIRECTORY": str(tmp_path), "GATEWAY_DRAIN_NOTICE_SECONDS": "0", **(environ or {})}
            cluster = Cluster(tmp_path / "cluster", environ=settings, **options)
            clusters.append(cluster)
            return stack.enter_context(cluster)

        yield start


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what the processes logged to the report of a failed test."""
    report = yield
    if report.failed:
        for cluster in item.stash.get(_RUNNING, []):
            report.sections += [(f"log of {name}", text[-_SHOWN_CHARACTERS:]) for name, text in cluster.logs()]
    return report
