"""Servers for the pages of the playground, and the browser that drives them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.test_dev import Dev

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """A run with the demo tools: two replicas, a worker and a task store."""
    with closing(Dev(cwd=tmp_path_factory.mktemp("demo"))) as dev:
        dev.read_until_ready()
        yield dev


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """A run with tools that ask every kind of question."""
    tools = str(HERE / "asking_tools.py")
    with closing(Dev("--tools", tools, "--workers", "0", cwd=tmp_path_factory.mktemp("asking"))) as dev:
        dev.read_until_ready()
        yield dev


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """A run with tools that attack the page."""
    tools = str(HERE / "hostile_tools.py")
    with closing(Dev("--tools", tools, "--workers", "0", cwd=tmp_path_factory.mktemp("hostile"))) as dev:
        dev.read_until_ready()
        yield dev
