"""One caller takes all it can get, and still cannot keep others out of a replica."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gateway.auth.tokens import mint
from loadtest.cluster import Cluster, Replica
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
    """One user, with a connection for each call: cheap, so a test can have hundreds of them."""

    def __init__(self, url: str, user: str) -> None:
        parts = urlsplit(url)
        self._host, self._port, self._path = parts.hostname, parts.port, parts.path
        self._authorization = f"Bearer {mint(SECRET, user, 'cluster')}"

    async def call(self, tool: str, **arguments: Any) -> int:
        """Call a tool, and return the HTTP status of the answer."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            return await self._send(reader, writer, tool, arguments)
        finally:
            writer.close()

    async def insist(self, tool: str, **arguments: Any) -> int:
        """Call repeatedly, on one connection, until the call is accepted."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            while (status := await self._send(reader, writer, tool, arguments)) == 503:  # noqa: ASYNC110 - as the refusal asks
                await asyncio.sleep(1)
            return status
        finally:
            writer.close()

    async def _send(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tool: str, arguments: Mapping[str, Any]
    ) -> int:
        message = tool_call(tool, arguments)
        body = msgspec.json.encode(message)
        headers = {
            **headers_of(message),
            "host": "localhost",
            "content-type": "application/json",
            "accept": "application/json",
            "authorization": self._authorization,
            "content-length": str(len(body)),
        }
        lines = [f"POST {self._path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        writer.write("\r\n".join(lines).encode() + body)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = re.search(r"content-length: (\d+)", head)
        assert length is not None, head
        await reader.readexactly(int(length[1]))
        return int(head.split(" ")[1])


async def until_metric(replica: Replica, name: str, least: float) -> None:
    """Poll a metric, rarely: reading it takes CPU time from the measured processes."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (value := await asyncio.to_thread(replica.metric, name)) < least:
        assert time.monotonic() < deadline, f"{name} is {value}"
        await asyncio.sleep(0.1)


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
    greedy, victim = Caller(cluster.url, "greedy"), Caller(cluster.url, "victim")
    async with asyncio.TaskGroup() as group:
        flood = [group.create_task(greedy.insist("hold_a_place", gate=f"g{number}")) for number in range(700)]
        await until(lambda: len(noted(tmp_path, "started")) == PLACES, "a replica that one caller has filled")
        await until_metric(replica, "gateway_share_refusals_total", 600)

        calls = [group.create_task(victim.call("think", text=str(number))) for number in range(VICTIMS)]
        await until_metric(replica, "gateway_callers_waiting", 2)
        ((first,), *_) = noted(tmp_path, "started")
        open_gate(tmp_path, first)
        assert await asyncio.gather(*calls) == [200] * VICTIMS
        # The one freed place served them all, one after the other, before the greedy caller got it back.
        assert len(noted(tmp_path, "started")) <= PLACES + 1
        for call in flood:
            call.cancel()


async def test_a_caller_that_is_alone_may_hold_every_place(
    start_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = await start(start_cluster, GATEWAY_MAX_INFLIGHT="4")
    alone = Caller(cluster.url, "alone")
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(alone.call("hold_a_place", gate=f"a{number}")) for number in range(5)]
        await until(lambda: len(noted(tmp_path, "started")) == 4, "four calls of one caller")
        for number in range(5):
            open_gate(tmp_path, f"a{number}")
        assert await asyncio.gather(*calls) == [200] * 5


async def test_a_caller_with_80_blocking_calls_leaves_the_next_free_thread_to_somebody_else(
    start_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = await start(start_cluster, GATEWAY_MAX_INFLIGHT="200")
    (replica,) = cluster.replicas
    greedy, victim = Caller(cluster.url, "greedy"), Caller(cluster.url, "victim")
    async with asyncio.TaskGroup() as group:
        flood = [group.create_task(greedy.call("hold_a_thread", gate=f"t{number}")) for number in range(80)]
        await until_metric(replica, "gateway_threads_waiting", 80 - THREADS)

        thinking = group.create_task(victim.call("think", text="mine"))
        await until_metric(replica, "gateway_threads_waiting", 81 - THREADS)
        ((first,), *_) = noted(tmp_path, "started")
        open_gate(tmp_path, first)

        assert await thinking == 200
        assert len(noted(tmp_path, "started")) <= THREADS + 1
        for number in range(80):
            open_gate(tmp_path, f"t{number}")
        assert set(await asyncio.gather(*flood)) == {200}
