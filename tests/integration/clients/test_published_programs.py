"""A published server on standard streams, behind two replicas, with the client of the `mcp` SDK 2 in front."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.auth.tokens import mint
from tests.children.running import alive, none_alive
from tests.integration.client import connect
from tests.integration.frameworks.known import PEERS
from tests.upstreams.site import Site
from tests.wires.draft.deployment import AUDIENCE, SECRET

TOKEN = mint(SECRET, "ada", AUDIENCE)
PROGRAM = str(PEERS / "stdio-servers/bin/mcp-server-time")
LOCAL = "--local-timezone=Asia/Kathmandu"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    upstreams: dict[str, Any] = {"time": {"command": PROGRAM, "args": [LOCAL], "gateway": {}}}
    with Site(tmp_path_factory.mktemp("published"), upstreams) as site:
        site.wait_listed()
        yield site


async def test_mcp_server_time_is_listed_and_called(site: Site) -> None:
    async with connect(site, {}, token=TOKEN) as connection:
        listed = {tool.name: tool for tool in (await connection.client.list_tools()).tools}
        assert listed.keys() == {"time__get_current_time", "time__convert_time"}
        assert "Asia/Kathmandu" in json.dumps(listed["time__convert_time"].input_schema), "its arguments arrived"
        noon = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Kathmandu"}
        for _ in range(4):
            text, is_error = await connection.call("time__convert_time", noon)
            assert not is_error
            assert json.loads(text)["time_difference"] == "+5.75h"
        text, is_error = await connection.call("time__convert_time", {**noon, "time": "25:00"})
        assert is_error
        assert "Invalid time format" in text


async def test_it_ends_with_its_replica(site: Site) -> None:
    assert len(alive(LOCAL)) == 2
    for replica in site.replicas:
        replica.kill()
    assert await none_alive(LOCAL, 5) < 5
