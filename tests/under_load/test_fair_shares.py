"""One caller takes all that it can get, and keeps nobody else out of a replica."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from gateway.auth.tokens import mint
from loadtest.cluster import Cluster
from tests.integration.raw import headers_of, tool_call
from tests.under_load.clients import PATIENCE_SECONDS, until
from tests.under_load.test_leaving import noted

SECRET = "a secret that only these tests know, 32 bytes"
PLACES = 32
THREADS = 32
IDENTIFIED = {
    "GATEWAY_TOOLS": "tests.under_load.greedy_tools,gateway.demo",
    "GATEWAY_AUTH": "jwt",
    "GATEWAY_JWT_SECRET": SECRET,
}
VICTIMS = 4


class Caller:
    """One user, with as many connections as it likes."""

    def __init__(self, url: str, user: str, http: httpx.AsyncClient) -> None:
        self._url, self._http = url, http
        self._authorization = {"authorization": f"Bearer {mint(SECRET, user, 'cluster')}"}

    async def call(self, tool: str, **arguments: Any) -> httpx.Response:
        message = tool_call(tool, arguments)
        headers = {**headers_of(message), "accept": "application/json", **self._authorization}
        return await self._http.post(self._url, json=message, headers=headers)

    async def insist(self, tool: str, **arguments: Any) -> httpx.Response:
        """Call again and again until the call is taken on."""
        while (response := await self.call(tool, **arguments)).status_code == 503:
            await asyncio.sleep(1)
        return response


@asynccontextmanager
async def callers(cluster: Cluster) -> AsyncIterator[tuple[Caller, Caller, asyncio.TaskGroup]]:
    """Give a greedy caller, a victim, and a group for their calls."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    timeout = httpx.Timeout(PATIENCE_SECONDS)
    async with (
        httpx.AsyncClient(timeout=timeout, limits=limits, trust_env=False, verify=False) as http,
        asyncio.TaskGroup() as group,
    ):
        yield Caller(cluster.url, "greedy", http), Caller(cluster.url, "victim", http), group


def open_gate(directory: Path, gate: str) -> None:
    (directory / f"gate-{gate}").touch()


async def start(start_cluster: Callable[..., Cluster], **settings: str) -> Cluster:
    environ: Mapping[str, str] = {**IDENTIFIED, **settings}
    return await asyncio.to_thread(start_cluster, environ, replicas=1, balancer=False)


async def test_a_caller_with_700_calls_keeps_nobody_waiting_for_longer_than_one_of_them_takes(
    start_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = await start(start_cluster, GATEWAY_MAX_INFLIGHT=str(PLACES))
    (replica,) = cluster.replicas
    async with callers(cluster) as (greedy, victim, group):
        flood = [group.create_task(greedy.insist("hold_a_place", gate=f"g{number}")) for number in range(700)]
        await until(lambda: len(noted(tmp_path, "started")) == PLACES, "a replica that one caller has filled")
        await until(lambda: replica.metric("gateway_share_refusals_total") >= 600, "refusals of that caller")

        calls = [group.create_task(victim.call("think", text=str(number))) for number in range(VICTIMS)]
        await until(lambda: replica.metric("gateway_callers_waiting") == 2, "another caller who waits too")
        ((first,), *_) = noted(tmp_path, "started")
        open_gate(tmp_path, first)
        answers = await asyncio.gather(*calls)

        assert [answer.status_code for answer in answers] == [200] * VICTIMS
        # The one place that was freed served them all, one after the other, before the greedy caller had it back.
        assert len(noted(tmp_path, "started")) <= PLACES + 1
        for call in flood:
            call.cancel()


async def test_a_caller_that_is_alone_may_hold_every_place(
    start_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = await start(start_cluster, GATEWAY_MAX_INFLIGHT="4")
    async with callers(cluster) as (alone, _, group):
        calls = [group.create_task(alone.call("hold_a_place", gate=f"a{number}")) for number in range(5)]
        await until(lambda: len(noted(tmp_path, "started")) == 4, "four calls of one caller")
        for number in range(5):
            open_gate(tmp_path, f"a{number}")
        assert [(await call).status_code for call in calls] == [200] * 5


async def test_a_caller_with_80_blocking_calls_leaves_the_next_free_thread_to_somebody_else(
    start_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = await start(start_cluster, GATEWAY_MAX_INFLIGHT="200")
    (replica,) = cluster.replicas
    async with callers(cluster) as (greedy, victim, group):
        flood = [group.create_task(greedy.call("hold_a_thread", gate=f"t{number}")) for number in range(80)]
        await until(lambda: replica.metric("gateway_threads_waiting") == 80 - THREADS, "80 calls for 32 threads")

        thinking = group.create_task(victim.call("think", text="mine"))
        await until(lambda: replica.metric("gateway_threads_waiting") == 81 - THREADS, "one more that waits")
        ((first,), *_) = noted(tmp_path, "started")
        open_gate(tmp_path, first)

        assert (await thinking).status_code == 200
        assert len(noted(tmp_path, "started")) <= THREADS + 1
        for number in range(80):
            open_gate(tmp_path, f"t{number}")
        assert {(await call).status_code for call in flood} == {200}
