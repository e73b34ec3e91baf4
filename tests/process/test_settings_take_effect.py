"""What an application built from settings does differently because of them."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from gateway import Context, tool
from gateway.process.app import GatewayApp
from gateway.protocol.versions import LEGACY
from gateway.wires.legacy.answer_delivery import ANSWER
from tests.asgi import HOST, Client, make_app
from tests.integration.raw import Answer, tool_call

NOBODY = {"principal": None, "scopes": [], "ends_at": math.inf, "key": b"", "session": b""}


class Who(BaseModel):
    name: str


@tool(asks={})
async def ask_undeclared(ctx: Context) -> str:
    """Ask what is not declared."""
    return (await ctx.elicit("who", "Who?", Who)).name


async def begin_session(app: GatewayApp) -> str:
    params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    begun = await send(app, {"method": "initialize", "params": params})
    return begun.headers["mcp-session-id"]


async def ping(app: GatewayApp, session: str) -> int:
    headers = {"mcp-session-id": session, "mcp-protocol-version": LEGACY}
    return (await send(app, {"method": "ping"}, **headers)).status


async def send(app: GatewayApp, message: dict[str, Any], **headers: str) -> Answer:
    given = {"content-type": "application/json", "accept": "application/json, text/event-stream", **headers}
    lines = [HOST, *((name.encode(), value.encode()) for name, value in given.items())]
    return await Client(app).send([msgspec.json.encode({"jsonrpc": "2.0", "id": 1, **message})], lines)


@pytest.mark.setting("strict_asks")
async def test_a_question_that_is_not_declared_fails_the_call_only_where_that_is_strict() -> None:
    lenient = await Client(make_app(__name__)).post(tool_call("ask_undeclared"))
    assert lenient.result["resultType"] == "input_required"
    strict = await Client(make_app(__name__, strict_asks=True)).post(tool_call("ask_undeclared"))
    assert strict.result["isError"]


@pytest.mark.setting("session_ttl_seconds")
async def test_a_session_ends_when_its_time_to_live_is_over() -> None:
    app = make_app(session_ttl_seconds=60)
    keys = app._services.keys
    began = keys.clock()
    keys.clock = lambda: began
    session = await begin_session(app)
    keys.clock = lambda: began + 59
    assert await ping(app, session) == 200
    keys.clock = lambda: began + 61
    assert await ping(app, session) == 404


@pytest.mark.setting("max_json_depth", "max_json_values")
@pytest.mark.parametrize(("depth", "values"), [(20, 0), (0, 1000)], ids=["deep", "long"])
def test_an_answer_that_another_replica_forwards_keeps_to_the_limits_of_this_one(depth: int, values: int) -> None:
    """The other replica may have larger limits."""
    take = make_app(max_json_depth=20, max_json_values=1000)._services.wires.hops._handlers[ANSWER]
    content = {"deep": msgspec.json.decode("[" * depth + "]" * depth or "0"), "long": [0] * values}
    answers = ({"action": "accept"}, {"action": "accept", "content": content})
    small, large = (msgspec.json.encode({"jsonrpc": "2.0", "id": "s1.", "result": answer}) for answer in answers)
    message = {"call": b"c" * 16, "key": "key", "authority": NOBODY}
    assert take({**message, "response": small}) == {"outcome": "late"}
    assert take({**message, "response": large}) is None
