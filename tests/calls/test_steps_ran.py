"""A call whose steps have run, and that cannot become a task, never reports that nothing ran."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import redis

from gateway import Context, tool
from gateway.process.app import GatewayApp
from tests.asgi import Client, make_app
from tests.integration.raw import META_CAPABILITIES, META_VERSION, VERSION, Answer, request
from tests.storage.servers import Server

META = {META_VERSION: VERSION, META_CAPABILITIES: {"extensions": {"io.modelcontextprotocol/tasks": {}}}}


@tool(task="optional", start="call")
async def pack(ctx: Context, steps: int) -> str:
    """Do some steps, then become a task."""
    for number in range(steps):
        await ctx.step(f"step {number}", int, number)
    await ctx.detach()
    return "packed"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    server = Server("redis", tmp_path)
    server.start()
    yield server
    server.end()


@pytest.fixture
async def app(server: Server) -> AsyncIterator[GatewayApp]:
    made = make_app(__name__, redis_url=server.url)
    yield made
    assert made._services.store is not None
    await made._services.store.aclose()


async def call(app: GatewayApp, steps: int) -> Answer:
    arguments: dict[str, Any] = {"_meta": META, "name": "pack", "arguments": {"steps": steps}}
    return await Client(app).post(request("tools/call", arguments))


@pytest.mark.parametrize(("steps", "error"), [(0, (503, -31001)), (1, (504, -31004)), (3, (504, -31004))])
async def test_only_a_call_without_steps_may_be_repeated_by_anybody_when_the_store_is_full(
    app: GatewayApp, server: Server, steps: int, error: tuple[int, int]
) -> None:
    assert (await call(app, steps)).result["resultType"] == "task"
    with redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory", "1")
    refused = await call(app, steps)
    assert refused.error == error
    assert ("steps of this call have run" in refused.message["error"]["message"]) == bool(steps)
    assert refused.message["error"]["data"]["retryAfterSeconds"] >= 1
