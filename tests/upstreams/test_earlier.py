"""Servers of 2025 that give no session, through two replicas: the results are those of the servers themselves."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import msgspec
import pytest

from tests.upstreams.servers.earlier import Earlier
from tests.upstreams.servers.plain_http import Exchange, PlainServer, Served
from tests.upstreams.site import META, Site, User, entry
from tests.upstreams.wires import WIRES, speaking
from tests.wires.draft.messages import call_params

SENTENCE = (
    "few__ask asks its user in a way that needs a session, but the server 'few' is called without one. It may have "
    "acted on the request; check before you try again. The option \"era\" of the upstream 'few' says how it is "
    "called; ask the operator of this gateway."
)
VERSIONS = {"few": "2025-11-25", "json": "2025-06-18"}
every_wire = pytest.mark.parametrize("wire", WIRES)


class InTurn(Served):
    """Two servers behind one address, which get the requests in turn and know nothing of each other."""

    def __init__(self, *servers: Earlier) -> None:
        self.servers = servers
        turns = itertools.cycle(servers)

        async def handle(exchange: Exchange) -> None:
            await next(turns).handle(exchange)

        self.server = PlainServer(handle)

    @property
    def methods(self) -> list[str]:
        return [method for server in self.servers for method in server.methods]


@pytest.fixture(scope="module")
def server() -> Iterator[InTurn]:
    with Earlier() as one, Earlier() as other, InTurn(one, other) as server:
        yield server


@pytest.fixture(scope="module")
def json_server() -> Iterator[Earlier]:
    with Earlier(sends_events=False, version="2025-06-18", refusal="ts1") as server:
        yield server


@pytest.fixture(scope="module")
def servers(server: InTurn, json_server: Earlier) -> Mapping[str, Served]:
    return {"few": server, "json": json_server}


@pytest.fixture(scope="module")
def few_site(server: InTurn, json_server: Earlier, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    upstreams = {
        "few": entry(server.url, timeout_seconds=20),
        "json": entry(json_server.url),
        "own": entry(server.url, era="sessionless", forward_headers=["x-github-token"]),
    }
    with Site(tmp_path_factory.mktemp("earlier"), upstreams) as site:
        site.wait_listed("few", "json")
        yield site


def direct(server: Served, method: str, params: dict[str, Any], version: str) -> Any:
    """Return the result that the server itself gives, as it is written."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    response = httpx.post(server.url, json=message, headers={"mcp-protocol-version": version}, timeout=5)
    kind = response.headers["content-type"]
    body = response.content.split(b"data: ", 1)[1].strip() if kind == "text/event-stream" else response.content
    return msgspec.json.decode(body, type=dict[str, Any])["result"]


def readable(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block of a result as all clients can read it: one of an unknown type as its text."""
    return block if block["type"] != "hologram" else {"type": "text", "text": msgspec.json.encode(block).decode()}


@every_wire
@pytest.mark.parametrize("tool", ["echo", "structured", "media", "fail"])
@pytest.mark.parametrize("upstream", VERSIONS)
async def test_results_are_those_of_the_server_itself(
    few_site: Site, servers: Mapping[str, Served], wire: str, tool: str, upstream: str
) -> None:
    arguments = {"text": "ü \u2028 \U0001f511"}
    params = {"name": tool, "arguments": arguments}
    expected = direct(servers[upstream], "tools/call", params, VERSIONS[upstream])
    expected["content"] = [readable(block) for block in expected["content"]]
    async with speaking(wire, few_site, "ada") as call:
        for _ in range(4):
            result = await call("tools/call", call_params(f"{upstream}__{tool}", arguments))
            assert {name: result[name] for name in expected if name != "_meta"} == {
                name: value for name, value in expected.items() if name != "_meta"
            }
            assert result.get("_meta", {}).items() >= expected.get("_meta", {}).items()


@every_wire
async def test_lists_prompts_resources_templates_and_completions_are_served(few_site: Site, wire: str) -> None:
    async with speaking(wire, few_site, "ada") as call:
        for upstream in ("few", "json"):
            prompt = await call("prompts/get", {"name": f"{upstream}__greeting", "arguments": {"name": "Ada"}})
            assert prompt["messages"][0]["content"]["text"] == "Hello, Ada!"
            for uri in ("note://today", "item://7"):
                read = await call("resources/read", {"uri": f"{upstream}+{uri}"})
                assert read["contents"] == [{"uri": f"{upstream}+{uri}", "text": f"at {uri}"}]
            reference = {"type": "ref/prompt", "name": f"{upstream}__greeting"}
            completed = await call(
                "completion/complete", {"ref": reference, "argument": {"name": "name", "value": "A"}}
            )
            assert completed["completion"]["values"] == ["Ada"]


@every_wire
async def test_a_question_ends_the_call_within_a_second_and_names_the_option(few_site: Site, wire: str) -> None:
    async with speaking(wire, few_site, f"asked-{wire}") as call:
        began = time.monotonic()
        result = await call("tools/call", call_params("few__ask"))
        assert result["isError"]
        assert result["content"][0]["text"] == SENTENCE
        assert time.monotonic() - began < 5, "the server itself waits without an end"


async def test_a_caller_with_lists_of_its_own_is_served(few_site: Site) -> None:
    async with few_site.user("ada", headers={"x-github-token": "t"}) as user:
        assert "own__echo" in await user.names()
        assert (await user.call("own__echo", {"text": "hi"})).text == "hi"


async def test_progress_and_logs_reach_the_client(few_site: Site) -> None:
    async with few_site.user("ada") as user:
        meta = {f"{META}/logLevel": "debug", "progressToken": "mine"}
        progress, logged = (await user.call("few__report", {}, _meta=meta)).notices
    assert progress["params"] == {"progressToken": "mine", "progress": 1, "total": 2, "message": "half"}
    assert (logged["params"]["level"], logged["params"]["data"]) == ("warning", "said")


async def test_a_client_that_leaves_ends_the_call_upstream(few_site: Site, json_server: Earlier) -> None:
    async with few_site.user("ada") as user:
        call = asyncio.create_task(user.call("json__slow"))
        await asyncio.to_thread(json_server.wait_begun)
        call.cancel()
        await asyncio.wait([call])
    await asyncio.to_thread(json_server.wait_left, "slow")


async def test_no_replica_listens_and_nothing_is_sent_twice(few_site: Site, server: InTurn) -> None:
    calls = server.methods.count("tools/call")
    async with few_site.user("ada") as user:
        await echoed(user, 6)
    assert server.methods.count("tools/call") == calls + 6
    assert "subscriptions/listen" not in server.methods
    assert "GET" not in server.methods


async def echoed(user: User, times: int) -> None:
    for _ in range(times):
        assert (await user.call("few__echo", {"text": "hi"})).text == "hi"
