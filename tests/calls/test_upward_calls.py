"""A leg passes down through the packages and back: few calls go from a package to one above it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from gateway import Context, tool
from gateway.calls.runner import CallRunner
from gateway.process.app import GatewayApp
from gateway.runtime.compilation import is_compiled
from tests.asgi import Client, make_app
from tests.calls.upward import Call, upward_calls
from tests.integration.raw import META_CAPABILITIES, META_VERSION, VERSION, accept, request
from tests.storage.servers import Server

pytestmark = pytest.mark.skipif(is_compiled(), reason="calls among compiled functions are not seen")

META = {
    META_VERSION: VERSION,
    META_CAPABILITIES: {"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}},
}
RUN = Call("engine.driver.run_leg", "authoring.served.Served._run")
SHED = Call("engine.leg.Leg._shed", "admission.shedding.LoadShedding.wants_shed")
READ = Call("engine.asking.AskingLeg._value", "authoring.forms.questions.Elicit.question.<locals>.<lambda>")
MOST = 3


class Who(BaseModel):
    name: str


@tool
async def complete() -> str:
    """Say something."""
    return "done"


@tool
async def ask(ctx: Context) -> str:
    """Ask something."""
    return (await ctx.elicit("who", "Who are you?", Who)).name


@tool
async def shed(ctx: Context) -> str:
    """Let another replica continue."""
    await ctx.checkpoint(1)
    return "done"


@tool(task="optional", start="call")
async def detach(ctx: Context) -> str:
    """Become a task."""
    await ctx.detach()
    return "done"


@tool(task="optional", start="call")
async def wait(ctx: Context) -> str:
    """Wait for the event loop, and become a task."""
    await asyncio.sleep(0)
    await ctx.detach()
    return "done"


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[GatewayApp]:
    server = Server("redis", tmp_path)
    server.start()
    made = make_app(__name__, redis_url=server.url)
    await leg(made, "detach")  # the first use checks the store
    yield made
    assert made._services.store is not None
    await made._services.store.aclose()
    server.end()


async def leg(app: GatewayApp, name: str, **brought: Any) -> dict[str, Any]:
    message = request("tools/call", {"_meta": META, "name": name, "arguments": {}, **brought})
    return (await Client(app).post(message)).result


async def calls_up(app: GatewayApp, name: str, **brought: Any) -> list[Call]:
    """Return the calls of a leg from a package to one above it."""
    with upward_calls(CallRunner.run.__code__) as found:
        await leg(app, name, **brought)
    return found


async def test_legs_of_all_kinds_together_make_no_more_than_three_different_calls_up(app: GatewayApp) -> None:
    found = {name: await calls_up(app, name) for name in ("complete", "ask", "detach")}
    app.drain()
    app._services.load.shedding.end_notice()
    found["shed"] = await calls_up(app, "shed")
    assert found == {"complete": [RUN], "ask": [RUN], "detach": [RUN], "shed": [RUN, SHED]}
    assert len({call for calls in found.values() for call in calls}) <= MOST


async def test_an_answer_is_read_by_the_model_of_its_author(app: GatewayApp) -> None:
    state = (await leg(app, "ask"))["requestState"]
    assert await calls_up(app, "ask", requestState=state, inputResponses=accept(name="Ada")) == [RUN, READ]


async def test_a_leg_that_waits_is_bounded_by_its_host(app: GatewayApp) -> None:
    bounded = Call("engine.driver.run_leg", "authoring.asyncio_host.AsyncioHost.bounded")
    found = await calls_up(app, "wait")
    assert found == [RUN, bounded]
    assert len(found) <= MOST
