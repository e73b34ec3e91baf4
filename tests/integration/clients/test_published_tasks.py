"""A published server with a tool that it runs only as a task, over HTTP and as a program, behind two replicas."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from loadtest.cluster import free_port, wait_until
from tests.integration.frameworks.known import PEERS
from tests.upstreams.site import Site, entry

PUBLISHED = PEERS / "published"
PROGRAM = [
    str(PUBLISHED / "bin/node"),
    str(PUBLISHED / "node_modules/@modelcontextprotocol/server-everything/dist/index.js"),
]


def _answers(url: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(url, timeout=20).status_code < 500
    return False


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Run the server over HTTP."""
    port = free_port()
    with (tmp_path / "everything").open("wb") as output:
        environ = {**os.environ, "PORT": str(port)}
        process = subprocess.Popen([*PROGRAM, "streamableHttp"], env=environ, stdout=output, stderr=output)
        try:
            url = f"http://127.0.0.1:{port}/mcp"
            wait_until(functools.partial(_answers, url), "the server")
            yield url
        finally:
            process.kill()
            process.wait()


async def test_a_tool_that_a_published_server_runs_only_as_a_task_is_a_tool(url: str, tmp_path: Path) -> None:
    program = {"command": PROGRAM[0], "args": [*PROGRAM[1:], "stdio"], "gateway": {}}
    with Site(tmp_path / "site", {"http": entry(url), "program": program}) as site:
        site.wait_listed()
        async with site.user(seconds=60.0) as user:
            replies = await asyncio.gather(
                *(
                    user.call(f"{upstream}__simulate-research-query", {"topic": "bees"})
                    for upstream in ("http", "program")
                    for _ in site.urls
                )
            )
    assert all(reply.text.startswith("# Research Report: bees") for reply in replies)
    assert {reply.url for reply in replies} == set(site.urls)
