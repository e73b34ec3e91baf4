"""Clients show the name that a tool module gives its server, unless a setting of the deployment names it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from tests.integration.fleet import Fleet
from tests.integration.raw import Served, accept, call, post, post_bytes, request

MODULE = """
from pydantic import BaseModel
from gateway import Context, server, tool

server(
    name="shop",
    title="The shop",
    version="2.1",
    instructions="Search before you order.",
    website_url="https://shop.example.com",
    icons=[{"src": "https://shop.example.com/icon.png", "mimeType": "image/png"}],
)

class Who(BaseModel):
    name: str

@tool
async def order(ctx: Context) -> str:
    return (await ctx.elicit("who", "For whom?", Who)).name
"""
OURS = {
    "name": "shop",
    "version": "2.1",
    "title": "The shop",
    "websiteUrl": "https://shop.example.com",
    "icons": [{"src": "https://shop.example.com/icon.png", "mimeType": "image/png"}],
}
SETTINGS = {"GATEWAY_SERVER_TITLE": "Our shop", "GATEWAY_SERVER_VERSION": "2.2", "GATEWAY_SERVER_INSTRUCTIONS": "Ask."}
OTHER = {**OURS, "title": "Our shop", "version": "2.2"}
INFO = "io.modelcontextprotocol/serverInfo"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two replicas of an upgrade: r2 has settings that change what the module says."""
    folder = tmp_path_factory.mktemp("identity")
    (folder / "shop.py").write_text(MODULE)
    with Fleet(folder, {"GATEWAY_TOOLS": str(folder / "shop.py")}, own={"r2": SETTINGS}) as fleet:
        yield fleet


def initialized(replica: Served, version: str) -> Mapping[str, Any]:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    return post_bytes(replica, msgspec.json.encode(body), headers).result


def test_discovery_introduces_the_server_and_other_results_name_it(fleet: Fleet) -> None:
    first, second = fleet.replicas
    discovered = post(first, request("server/discover")).result
    assert (discovered["_meta"][INFO], discovered["instructions"]) == (OURS, "Search before you order.")
    assert post(first, request("tools/list")).result["_meta"] == {INFO: {"name": "shop", "version": "2.1"}}
    discovered = post(second, request("server/discover")).result
    assert (discovered["_meta"][INFO], discovered["instructions"]) == (OTHER, "Ask.")


@pytest.mark.parametrize("version", ["2025-11-25", "DRAFT-2026-v1"])
def test_a_session_begins_with_the_introduction(fleet: Fleet, version: str) -> None:
    first, second = (initialized(replica, version) for replica in fleet.replicas)
    assert (first["protocolVersion"], second["protocolVersion"]) == (version, version)
    assert (first["serverInfo"], first["instructions"]) == (OURS, "Search before you order.")
    assert (second["serverInfo"], second["instructions"]) == (OTHER, "Ask.")


def test_an_older_session_gets_the_fields_that_it_knows(fleet: Fleet) -> None:
    result = initialized(fleet.replicas[0], "2025-06-18")
    assert result["serverInfo"] == {"name": "shop", "version": "2.1", "title": "The shop"}
    assert result["instructions"] == "Search before you order."


def test_replicas_of_two_versions_continue_each_others_calls(fleet: Fleet) -> None:
    first, second = fleet.replicas
    asked = call(first, "order")
    assert call(second, "order", requestState=asked.state, inputResponses=accept(name="Ada")).text == "Ada"
