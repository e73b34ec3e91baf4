"""Functions see the headers that the operator lists, as the first request had them, and no others."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from gateway import Context, PlainContext, prompt, resource, tool
from gateway.calls.shown_headers import MAX_BYTES
from gateway.process.app import GatewayApp
from tests.asgi import Client, make_app, raw_headers
from tests.integration.raw import request, tool_call


class Name(BaseModel):
    name: str


@tool
async def greet(ctx: Context) -> str:
    """Return what the function sees before and after a question."""
    before = dict(ctx.headers)
    await ctx.elicit("who", "Who are you?", Name)
    return f"{before} {dict(ctx.headers)} {ctx.headers.get('X-Tenant')} {len(ctx.headers)}"


@tool
def plain(ctx: PlainContext) -> str:
    """Return the tenant."""
    return ctx.headers["X-TENANT"]


@prompt
async def ask(ctx: Context) -> str:
    """Return the tenant."""
    return ctx.headers["x-tenant"]


@resource("tenant://mine")
async def mine(ctx: Context) -> str:
    """Return the tenant."""
    return ctx.headers["x-tenant"]


@pytest.fixture
def app() -> GatewayApp:
    return make_app(__name__, tool_headers=("x-tenant", "accept-language"), show_errors=True)


async def post(app: GatewayApp, message: dict[str, Any], *more: tuple[bytes, bytes]) -> Any:
    return await Client(app).send([msgspec.json.encode(message)], [*raw_headers(message), *more])


BLUE = (b"x-tenant", b"blue")
RED = (b"x-tenant", b"red")


@pytest.mark.setting("tool_headers")
async def test_every_leg_sees_the_headers_of_the_first_request(app: GatewayApp) -> None:
    first = await post(app, tool_call("greet"), BLUE, (b"x-other", b"hidden"))
    answered = tool_call(
        "greet", requestState=first.state, inputResponses={"who": {"action": "accept", "content": {"name": "Ada"}}}
    )
    second = await post(app, answered, RED, (b"accept-language", b"de"))
    seen = str({"x-tenant": "blue"})
    assert second.result["content"][0]["text"] == f"{seen} {seen} blue 1"


@pytest.mark.parametrize(
    "message",
    [
        tool_call("plain"),
        request("prompts/get", {"name": "ask", "arguments": {}}),
        request("resources/read", {"uri": "tenant://mine"}),
    ],
    ids=["plain function", "prompt", "resource"],
)
async def test_functions_of_every_kind_see_them(app: GatewayApp, message: dict[str, Any]) -> None:
    assert b"blue" in (await post(app, message, BLUE)).body


async def test_a_header_that_is_missing_says_how_it_is_shown(app: GatewayApp) -> None:
    said = (await post(app, tool_call("plain"))).result
    assert said["isError"]
    assert "the request has no 'X-TENANT', or GATEWAY_TOOL_HEADERS does not list it" in said["content"][0]["text"]


@pytest.mark.parametrize("value", [b"bl\xc3\xbce", b"a\x00b"])
async def test_a_value_that_two_readers_could_read_differently_is_refused(app: GatewayApp, value: bytes) -> None:
    refused = await post(app, tool_call("plain"), (b"x-tenant", value))
    assert (refused.status, refused.message["error"]["code"]) == (400, -32600)


async def test_a_repeated_header_is_refused(app: GatewayApp) -> None:
    refused = await post(app, tool_call("plain"), BLUE, RED)
    assert (refused.status, refused.message["error"]["message"]) == (400, "Header x-tenant must not be repeated")


@pytest.mark.parametrize(("more", "status"), [(0, 200), (1, 400)])
async def test_headers_may_take_two_kibibytes_together(app: GatewayApp, more: int, status: int) -> None:
    room = MAX_BYTES - len("x-tenant") - len("accept-language") - len("de")
    given = (b"x-tenant", b"a" * (room + more))
    assert (await post(app, tool_call("plain"), given, (b"accept-language", b"de"))).status == status


async def test_nothing_is_shown_unless_it_is_listed() -> None:
    said = (await post(make_app(__name__, show_errors=True), tool_call("plain"), BLUE)).result
    assert said["isError"]
