"""Servers for the pages of the playground, and the browser that drives them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from loadtest.cluster import Cluster, clean_environment
from tests.cli.test_dev import Dev
from tests.process.test_embedding import Host
from tests.upstreams.servers.session import InSessions
from tests.upstreams.site import entry

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
def holding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """A run with a server that asks in the middle of its calls."""
    folder = tmp_path_factory.mktemp("holding")
    with InSessions() as server:
        upstreams = {"mcpServers": {"held": entry(server.url, scope="caller")}}
        (folder / "upstreams.json").write_text(json.dumps(upstreams))
        with closing(Dev("--upstreams", "upstreams.json", "--workers", "0", cwd=folder)) as dev:
            dev.read_until_ready()
            yield dev


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """A run with tools that attack the page."""
    tools = str(HERE / "hostile_tools.py")
    with closing(Dev("--tools", tools, "--workers", "0", cwd=tmp_path_factory.mktemp("hostile"))) as dev:
        dev.read_until_ready()
        yield dev


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """One replica that checks tokens, and a gateway in another application; what a script needs to reach them."""
    environ = {
        "GATEWAY_AUTH": "",
        "GATEWAY_PLAYGROUND": "on",
        "GATEWAY_TOOLS": "gateway.demo,tests.playground.guarded_tools",
        "GATEWAY_JWT_SECRET": "s" * 32,
    }
    folder = tmp_path_factory.mktemp("served")
    mounted = Host(folder, app="tests.playground.mounted_app:app")
    with Cluster(folder, replicas=1, balancer=False, environ=environ) as cluster, mounted:
        yield {
            "SERVE_URL": cluster.url.removesuffix("mcp"),
            "MOUNTED_URL": f"{mounted.origin}/tools/",
            "TOKEN": token_of(cluster, "--scope", "secrets:read"),
            "WEAK_TOKEN": token_of(cluster),
        }


def token_of(cluster: Cluster, *options: str) -> str:
    """Return a token of somebody, with these options of `gateway token`."""
    command = [sys.executable, "-m", "gateway", "token", "--sub", "me", *options]
    return subprocess.run(
        command, env=clean_environment(cluster.environ), capture_output=True, text=True, check=True
    ).stdout.strip()
