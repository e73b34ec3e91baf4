"""Replicas are killed and frozen behind each shipped proxy while their calls are at an upstream. It acts at most once.

Every caller reads a result, or an error that says that nobody knows whether the call ran, and the upstream's own count
agrees. The long form of the test: `CALLS=500 KILL_SECONDS=5 make chaos CHAOS="-k lost_replicas"`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import httpx2
import mcp_types
import msgspec
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from gateway.cli.own_requests import show
from loadtest.cluster import Replica, new_key, wait_until
from loadtest.cluster.common import HOST
from tests.chaos.test_killed_upstreams import MAY_HAVE_ACTED, NOT_SENT, Upstream
from tests.integration.raw import headers_of, post, request, tool_call
from tests.proxies.front import PROXIES, Front, HAProxy

CALLS = int(os.environ.get("CALLS", "60"))
"""How many orders each proxy gets at least."""
KILL_SECONDS = float(os.environ.get("KILL_SECONDS", "2"))
STRIKES = max(2, CALLS // 50)
"""How often a replica is killed or frozen at least."""
FROZEN_SECONDS = 7.0
"""Longer than HAProxy needs to notice."""
CALLERS = 12
WORK_SECONDS = 0.4
"""How long the upstream works before its effect, and again after it."""
SECONDS = 60.0


class Site:
    """Two replicas with an upstream without a prefix, so that its names look like the replicas' own."""

    def __init__(self, directory: Path, upstream: Upstream) -> None:
        self.file = directory / "upstreams.json"
        self.file.write_text(json.dumps({"mcpServers": {"up": {"url": upstream.url, "gateway": {"prefix": ""}}}}))
        environ = {
            "GATEWAY_TOOLS": "tests.proxies.own_tools",
            "GATEWAY_UPSTREAMS": str(self.file),
            "GATEWAY_SEAL_KEYS": new_key(),
            "GATEWAY_AUDIENCE": "chaos",
            "GATEWAY_AUTH": "none",
            "GATEWAY_TRUSTED_PROXIES": HOST,
        }
        self.replicas = [Replica(name, environ, directory / f"{name}.log", hold=False) for name in ("r1", "r2")]

    def wait_listed(self) -> None:
        """Wait until each replica serves the upstream's tools."""
        for replica in self.replicas:
            wait_until(lambda r=replica: "act" in _tools(r), f"{replica.name} to list")  # type: ignore[misc]

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [replica.address for replica in self.replicas]


def _tools(replica: Replica) -> set[str]:
    return {tool["name"] for tool in post(replica, request("tools/list")).result["tools"]}


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upstream]:
    upstream = Upstream(tmp_path_factory.mktemp("upstream"))
    yield upstream
    upstream.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("site"), upstream)
    with contextlib.ExitStack() as stack:
        for replica in site.replicas:
            stack.callback(replica.stop)
            replica.start()
        for replica in site.replicas:
            replica.wait_ready()
        site.wait_listed()
        yield site


@pytest.fixture(params=PROXIES, ids=lambda proxy: proxy.program)
def front(request: pytest.FixtureRequest, site: Site, tmp_path: Path) -> Iterator[Front]:
    kind: type[Front] = request.param
    if kind is HAProxy:
        kind = type("HAProxyWithUpstream", (HAProxy,), {"own": show("tests.proxies.own_tools", str(site.file))})
    front = kind(tmp_path, site.addresses)
    try:
        front.start()
        front.wait_ready()
        yield front
    finally:
        front.stop()


@dataclass
class Outcomes:
    """How orders ended, by key.

    Attributes:
        completed: with a result.
        unknown: the caller reads that nobody knows whether it ran.
        not_sent: the caller reads that nothing was sent.
        cut: the connection was closed without a reply.
        strikes: how often a replica was killed or frozen.
    """

    completed: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    not_sent: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    strikes: int = 0

    def note(self, key: str, answer: dict[str, Any]) -> None:
        """Note how an order of 2026-07-28 ended."""
        if "error" in answer:
            ends = {-31004: self.unknown, -31001: self.not_sent}
            ends[answer["error"]["code"]].append(key)
        elif not answer["result"].get("isError"):
            assert answer["result"]["content"] == [{"type": "text", "text": key}]
            self.completed.append(key)
        else:
            said = json.dumps(answer["result"])
            may_have, not_sent = MAY_HAVE_ACTED in said, any(words in said for words in NOT_SENT)
            assert may_have != not_sent, said
            (self.unknown if may_have else self.not_sent).append(key)


async def order(http: httpx.AsyncClient, front: Front, key: str, *, asks: bool, kept: bool) -> dict[str, Any]:
    """Order once, and answer the upstream's question if it asks. Nothing is sent twice."""
    name = "ask_then_act" if asks else "act"
    more: dict[str, Any] = {}
    while True:
        message = tool_call(name, {"key": key, "seconds": WORK_SECONDS}, **more)
        headers = {**headers_of(message), "accept": "application/json", **({} if kept else {"connection": "close"})}
        response = await http.post(front.url, content=msgspec.json.encode(message), headers=headers)
        answer: dict[str, Any] = msgspec.json.decode(response.content)
        if answer.get("result", {}).get("resultType") != "input_required":
            return answer
        accepted = {"action": "accept", "content": {"name": "yes"}}
        more = {
            "requestState": answer["result"]["requestState"],
            "inputResponses": dict.fromkeys(answer["result"]["inputRequests"], accepted),
        }


async def call_stateless(
    front: Front, outcomes: Outcomes, keys: Iterator[str], caller: int, done: asyncio.Event
) -> None:
    """Order again and again on 2026-07-28; half of the callers keep their connection, and half are asked."""
    async with httpx.AsyncClient(timeout=SECONDS, trust_env=False, verify=False) as http:
        while not done.is_set():
            key = next(keys)
            try:
                outcomes.note(key, await order(http, front, key, asks=caller % 4 < 2, kept=caller % 2 == 0))
            except httpx.RemoteProtocolError:
                outcomes.cut.append(key)


@contextlib.asynccontextmanager
async def session(front: Front) -> AsyncIterator[Client]:
    """Connect the official client with a session (2025-11-25)."""

    async def answer(context: object, params: object) -> mcp_types.ElicitResult:
        return mcp_types.ElicitResult(action="accept", content={"name": "yes"})

    async with (
        httpx2.AsyncClient(timeout=SECONDS, trust_env=False, verify=False) as http,
        Client(
            streamable_http_client(front.url, http_client=http), elicitation_callback=answer, mode="legacy"
        ) as client,
    ):
        yield client


async def call_in_session(front: Front, outcomes: Outcomes, keys: Iterator[str], done: asyncio.Event) -> None:
    """Order again and again in sessions. Where the client gets no result, nobody knows whether the order ran."""
    while not done.is_set():
        key = ""
        try:
            async with session(front) as client:
                while not done.is_set():
                    key = next(keys)
                    async with asyncio.timeout(FROZEN_SECONDS * 2):
                        result = await client.call_tool("ask_then_act", {"key": key, "seconds": WORK_SECONDS})
                    assert isinstance(result, mcp_types.CallToolResult)
                    (outcomes.unknown if result.is_error else outcomes.completed).append(key)
        except Exception:  # noqa: BLE001 - a lost session shows in many ways
            outcomes.unknown += [key] if key else []


async def next_effect(upstream: Upstream) -> None:
    """Wait for an effect of the upstream."""
    before = upstream.acted().total()
    await asyncio.to_thread(wait_until, lambda: upstream.acted().total() > before, "an effect")


async def strike(site: Site, upstream: Upstream, outcomes: Outcomes, enough: asyncio.Event) -> None:
    """Kill a replica, then freeze one, in turn, until there were enough orders and faults.

    Each fault comes right after an effect, so that orders have acted that are not done. After a fixed pause it could
    always meet them in the same half of their work, because a fault lets all callers start at once. One order at least
    must have acted when its replica was lost; a busy machine may need more faults.
    """
    for number in itertools.count():
        await asyncio.sleep(KILL_SECONDS)
        await next_effect(upstream)
        if len(outcomes.completed) + len(outcomes.unknown) >= CALLS and outcomes.strikes >= STRIKES:
            acted = upstream.acted()
            if any(acted[key] for key in outcomes.unknown):
                enough.set()
                return
        replica = site.replicas[number % len(site.replicas)]
        outcomes.strikes += 1
        if number % 2 == 0:
            await asyncio.to_thread(replica.kill)
            await asyncio.to_thread(replica.restart)
        else:
            replica.pause()
            await asyncio.sleep(FROZEN_SECONDS)
            replica.resume()


async def run(front: Front, site: Site, upstream: Upstream) -> Outcomes:
    outcomes, done = Outcomes(), asyncio.Event()
    keys = (f"{front.program}-{number}" for number in itertools.count())
    async with asyncio.TaskGroup() as group:
        for caller in range(CALLERS):
            group.create_task(call_stateless(front, outcomes, keys, caller, done))
        for _ in range(2):
            group.create_task(call_in_session(front, outcomes, keys, done))
        await strike(site, upstream, outcomes, done)
    return outcomes


@pytest.mark.timeout(120 + STRIKES * 60)
def test_an_upstream_acts_once_although_the_replica_in_between_is_lost(
    front: Front, site: Site, upstream: Upstream
) -> None:
    outcomes = asyncio.run(run(front, site, upstream))
    acted = upstream.acted()
    assert {key: times for key, times in acted.items() if times > 1} == {}
    assert [key for key in outcomes.completed if acted[key] != 1] == []
    assert [key for key in outcomes.not_sent + outcomes.cut if acted[key]] == []
    assert len(outcomes.cut) <= front.closed_unsent
