"""Functions that can ask only in a session: recognised by what real servers say, remembered for an hour."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from gateway.errors import CannotContinue
from gateway.protocol.strict_json import decode, encode
from gateway.sealing.principal import Principal
from gateway.upstreams.failures import UpstreamError
from gateway.upstreams.sessions import REMEMBERED_SECONDS, NeedSessions, is_error_of_session, is_result_of_session
from tests.upstreams.relay.calling import Call, Replica, replica_of

NO_CHANNEL = (
    "Cannot send 'elicitation/create': this transport context has no back-channel for server-initiated requests."
)
FASTMCP = "elicitation via server-initiated requests is unavailable on 2026-07-28 connections."

TYPESCRIPT = (
    "Server-to-client requests are not available on protocol revision 2026-07-28: 'elicitation/create' cannot be sent "
    "while serving a request on that revision. Return inputRequired({ ... }) from the handler instead"
)
TYPESCRIPT_SESSIONLESS = (
    "Cannot request input 'name' (elicitation/create): the client on this 2025-era connection did not declare the "
    "required capability (no client capabilities)"
)
SUPERGATEWAY = "MCP error -32601: Server-to-client requests are not supported in stateless mode"


def failed(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": True}


@pytest.mark.parametrize(("code", "text"), [(-32600, NO_CHANNEL), (-32603, NO_CHANNEL), (-32603, FASTMCP)])
def test_the_errors_of_known_servers_are_recognised(code: int, text: str) -> None:
    assert is_error_of_session(UpstreamError("up", code, text))


@pytest.mark.parametrize(
    "text", [FASTMCP, f"Error calling tool 'ask': {NO_CHANNEL}", TYPESCRIPT, TYPESCRIPT_SESSIONLESS, SUPERGATEWAY]
)
def test_the_failed_results_of_known_servers_are_recognised(text: str) -> None:
    assert is_result_of_session(failed(text))


@pytest.mark.parametrize(
    "result",
    [
        {**failed(NO_CHANNEL), "isError": False},
        failed("x" * 500 + NO_CHANNEL),
        {"content": failed(NO_CHANNEL)["content"] * 2, "isError": True},
        {"content": NO_CHANNEL, "isError": True},
        {"content": [NO_CHANNEL], "isError": True},
        failed("It failed"),
    ],
)
def test_a_result_that_only_contains_the_words_is_not_taken_for_it(result: dict[str, Any]) -> None:
    assert not is_result_of_session(result)


def test_other_codes_are_the_upstreams_own() -> None:
    assert not is_error_of_session(UpstreamError("up", 1234, NO_CHANNEL))


def test_a_function_is_remembered_for_an_hour() -> None:
    now = 0.0
    known = NeedSessions(lambda: now)
    known.add("ada", "tools/call", "ask")
    assert known.has("ada", "tools/call", "ask")
    assert not known.has("ada", "prompts/get", "ask")
    now = REMEMBERED_SECONDS
    assert not known.has("ada", "tools/call", "ask")


class Quoting:
    """An upstream whose failed results repeat what its caller wrote."""

    def __init__(self) -> None:
        self.text = ""

    async def request(self, method: str, params: dict[str, Any], **_options: Any) -> dict[str, Any]:
        return failed(f"No such user: {self.text or decode(encode(params))['arguments']['user']}")


async def test_a_caller_whose_words_an_upstream_repeats_takes_no_tool_away() -> None:
    async with replica_of("http://127.0.0.1:1/mcp", client=Quoting()) as replica:
        tool = replica.tool("find")
        for _ in range(2):
            result = await Call(tool, {"user": NO_CHANNEL}).result()
            assert result == failed(f"No such user: {NO_CHANNEL}")


async def test_a_caller_who_makes_an_upstream_say_it_takes_the_tool_from_nobody_else() -> None:
    client = Quoting()
    async with replica_of("http://127.0.0.1:1/mcp", client=client) as replica:
        tool = replica.tool("find")
        client.text = NO_CHANNEL  # as if decoded from an argument
        ada, bob = (Principal("issuer", name, "app") for name in ("ada", "bob"))
        for _ in range(2):
            assert "needs a session" in str(await Call(tool, {"user": "…"}, principal=ada).error())
        client.text = ""
        assert await Call(tool, {"user": "bob"}, principal=bob).result() == failed("No such user: bob")


class Speaking:
    """A client that sends requests straight to an application of the SDK."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.in_sessions: list[bool] = []

    async def request(self, method: str, params: dict[str, Any], **options: Any) -> dict[str, Any]:
        self.in_sessions.append(options["needs_session"])
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "gateway", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": options["requester"].capabilities,
        }
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "content-type": "application/json",
            "mcp-method": method,
            "mcp-name": params["name"],
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        answer = (await self.http.post("/mcp", content=encode(body), headers=headers)).json()
        if "error" in answer:
            raise UpstreamError("up", answer["error"]["code"], answer["error"]["message"], answer["error"].get("data"))
        result = answer["result"]
        assert isinstance(result, dict)
        return result


@contextlib.asynccontextmanager
async def sdk() -> AsyncIterator[tuple[Replica, Speaking]]:
    """Relay to a server of the `mcp` SDK 2 in this process."""
    from tests.upstreams.servers.sdk2 import server  # noqa: PLC0415 - takes a second to import

    app = server.streamable_http_app()
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as http,
    ):
        client = Speaking(http)
        async with replica_of("http://127.0.0.1:1/mcp", client=client) as replica:
            yield replica, client


async def test_servers_of_the_sdk_ask_statelessly_where_they_can_and_are_remembered_where_they_cannot() -> None:
    async with sdk() as (replica, client):
        call = Call(replica.tool("resolved"))
        (key,) = await call.asked()
        result = await call.result({key: {"result": {"action": "accept", "content": {"name": "Ada"}}}})
        assert result["content"][0]["text"] == "Hello, Ada!"

        waiting = replica.tool("awaited")
        error = await Call(waiting).error()
        assert isinstance(error, CannotContinue)
        assert "The option \"era\" of the upstream 'up'" in str(error)
        assert "may have acted" in str(error)
        assert replica.telemetry.failures == {"needs_session": 1}

        assert client.in_sessions[-1] is False
        await Call(waiting).error()
        assert client.in_sessions[-1] is True, "it is called in a session from now on"
