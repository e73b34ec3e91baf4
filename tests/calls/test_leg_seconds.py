"""A tool's own time limit holds on a server, within that of the deployment."""

from __future__ import annotations

import asyncio

import pytest

from gateway import tool
from tests.asgi import Client, make_app
from tests.integration.raw import tool_call


@tool(leg_seconds=0.01)
async def waits() -> str:
    """Wait for good."""
    await asyncio.Event().wait()
    return ""


@pytest.mark.parametrize(("deployment", "limit"), [(60, "0.01"), (0.001, "0.001")])
async def test_the_shorter_limit_ends_a_leg_of_a_call(deployment: float, limit: str) -> None:
    app = make_app(__name__, leg_seconds=deployment)
    answer = await asyncio.wait_for(Client(app).post(tool_call("waits")), 20)
    assert f"did not finish within {limit} seconds" in answer.result["content"][0]["text"]
