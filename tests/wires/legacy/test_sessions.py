"""Sessions of 2025-11-25 and 2025-06-18: which version is spoken, what is declared, and what a message needs."""

from __future__ import annotations

from typing import Any, Final

import httpx
import pytest

from gateway.errors import HeaderMismatch
from gateway.protocol.handshake.requests import CANCELLED
from gateway.protocol.versions import DRAFT, LEGACY_VERSIONS, RELEASED
from tests.wires.draft.client import DraftClient
from tests.wires.draft.conftest import ClientOf
from tests.wires.draft.deployment import Deployment
from tests.wires.draft.messages import call_params
from tests.wires.draft.transport import RpcError
from tests.wires.legacy.conftest import Begin
from tests.wires.legacy.speaking import BEFORE_TASKS, LEGACY, text_of

BEGINNING = {"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


@pytest.mark.parametrize("version", LEGACY_VERSIONS)
async def test_a_session_speaks_the_version_it_was_opened_for_at_every_replica(
    begin: Begin, fleet: Deployment, name: str, version: str
) -> None:
    client = await begin(version=version)
    assert client.server["protocolVersion"] == version
    for url in fleet.urls:
        client.transport.urls = [url]
        assert await client.request("ping") == {}
        assert text_of(await client.request("tools/call", {"name": "say", "arguments": {"call": name}})) == "done"
    del client.transport.headers["MCP-Protocol-Version"]  # as clients of older versions do
    assert await client.request("ping") == {}


@pytest.mark.parametrize("version", ["2024-10-07", "2026-07-28", "v999"])
async def test_who_asks_for_another_version_is_offered_2025_11_25(client_of: ClientOf, name: str, version: str) -> None:
    client = client_of(name)
    del client.transport.headers["MCP-Protocol-Version"]
    result = await client.request("initialize", BEGINNING | {"protocolVersion": version})
    assert result["protocolVersion"] == LEGACY


async def test_what_the_server_can_do_is_declared_as_far_as_the_version_knows_it(begin: Begin) -> None:
    newer, older = await begin(), await begin(version=BEFORE_TASKS)
    assert {"tools", "prompts", "resources", "logging", "tasks"} <= set(newer.server["capabilities"])
    assert newer.server["capabilities"]["tasks"] == {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    assert set(newer.server["capabilities"]) - set(older.server["capabilities"]) == {"tasks"}


async def test_only_clients_with_tasks_see_which_tools_support_them(begin: Begin) -> None:
    newer, older = await begin(), await begin(version=BEFORE_TASKS)
    told = {tool["name"]: tool for tool in (await newer.request("tools/list"))["tools"]}
    assert told["say"]["execution"] == {"taskSupport": "optional"}
    assert told["plain"]["execution"] == {"taskSupport": "forbidden"}
    assert not [tool for tool in (await older.request("tools/list"))["tools"] if "execution" in tool]
    with pytest.raises(RpcError) as refused:
        await older.request("tasks/list")
    assert (refused.value.status, refused.value.code) == (200, -32601)


async def test_a_client_before_tasks_that_sends_a_task_gets_its_result(begin: Begin, name: str) -> None:
    older = await begin(version=BEFORE_TASKS)
    assert text_of(await older.call_tool("say", {"call": name}, task={"ttl": "forever"})) == "done"


async def test_the_error_for_a_client_before_tasks_names_the_version_that_a_task_tool_requires(begin: Begin) -> None:
    older = await begin(version=BEFORE_TASKS)
    with pytest.raises(RpcError, match="that requires a client of 2025-11-25 or newer") as refused:
        await older.request("tools/call", call_params("only_a_task"))
    assert (refused.value.status, refused.value.code) == (200, -32601)


async def test_without_a_session_nothing_is_served(client_of: ClientOf, name: str) -> None:
    client = client_of(name)
    for version in (LEGACY, None):
        if version is None:
            del client.transport.headers["MCP-Protocol-Version"]
        else:
            client.transport.headers["MCP-Protocol-Version"] = version
        with pytest.raises(RpcError) as refused:
            await client.request("tools/list")
        assert refused.value.status == 400


async def test_a_header_that_names_another_version_than_the_session_is_refused(user: DraftClient) -> None:
    user.transport.headers["MCP-Protocol-Version"] = BEFORE_TASKS
    with pytest.raises(RpcError) as refused:
        await user.request("tools/list")
    assert refused.value.status == 400


async def test_a_session_of_somebody_else_is_not_found(user: DraftClient, client_of: ClientOf, name: str) -> None:
    other = client_of(f"{name}-other")
    other.transport.headers |= {"MCP-Protocol-Version": LEGACY, "Mcp-Session-Id": user.session_id or ""}
    with pytest.raises(RpcError) as refused:
        await other.request("tools/list")
    assert refused.value.status == 404


UNLIKE_ITS_HEADER: Final[dict[str, tuple[dict[str, Any], dict[str, str]]]] = {
    "notification": ({"method": CANCELLED, "params": {"requestId": 5}}, {"Mcp-Method": "tools/list"}),
    "response": ({"id": "s1.x", "result": {"action": "accept"}}, {"Mcp-Method": "tools/list"}),
    "task": ({"id": 1, "method": "tasks/result", "params": {"taskId": "t"}}, {"Mcp-Name": "other"}),
    "subscription": ({"id": 1, "method": "resources/subscribe", "params": {"uri": "docs://a"}}, {"Mcp-Name": "b:/"}),
}


@pytest.mark.parametrize("message", UNLIKE_ITS_HEADER)
@pytest.mark.parametrize("version", [LEGACY, BEFORE_TASKS, DRAFT])
async def test_a_message_of_any_kind_that_differs_from_its_headers_is_refused(
    begin: Begin, version: str, message: str
) -> None:
    await assert_differs(await begin(version=version), message)


async def test_a_notification_of_2026_07_28_that_differs_from_its_headers_is_refused(
    client_of: ClientOf, name: str
) -> None:
    client = client_of(name)
    client.transport.headers["MCP-Protocol-Version"] = RELEASED
    await assert_differs(client, "notification")


async def assert_differs(client: DraftClient, message: str) -> None:
    members, headers = UNLIKE_ITS_HEADER[message]
    client.transport.headers |= headers
    async with client.transport.post({"jsonrpc": "2.0", **members}) as answer:
        (told,) = [each async for each in answer.messages]
    assert answer.status == (200 if "method" in members and "id" in members else 400)
    assert told["error"]["code"] == HeaderMismatch.CODE


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_there_is_no_stream_of_its_own_and_nothing_to_delete(user: DraftClient, method: str) -> None:
    async with httpx.AsyncClient(trust_env=False, verify=False) as http:
        headers = user.transport.headers | {"Accept": "text/event-stream"}
        assert (await http.request(method, user.transport.urls[0], headers=headers)).status_code == 405
