"""Reaching a task takes the scopes that its tool required, even on a replica without the tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.calls.authority.conftest import ClientOf, challenge_of
from tests.integration.raw import META, NAMED_BY, VERSION
from tests.wires.draft.client import DraftClient
from tests.wires.draft.deployment import Deployment
from tests.wires.draft.messages import FIRST_FORM_RELATED_TASK, FIRST_FORM_TASK, RELATED_TASK, call_params
from tests.wires.draft.transport import RpcError
from tests.wires.draft.under_way import under_way
from tests.wires.legacy.speaking import LEGACY
from tests.wires.released.conftest import TASKS

RELEASED = {"_meta": {**META, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, **TASKS}}}

REACHING: list[tuple[str, str]] = [
    (VERSION, "tasks/get"),
    (VERSION, "tasks/update"),
    (VERSION, "tasks/cancel"),
    (LEGACY, "tasks/get"),
    (LEGACY, "tasks/result"),
    (LEGACY, "tasks/cancel"),
    ("draft", "tasks/get"),
    ("draft", "tasks/result"),
    ("draft", "tasks/cancel"),
    ("draft", "tasks/delete"),
    ("draft", "tasks/input_response"),
]
"""The wires, and their requests that reach a task by its id."""


async def ask(client: DraftClient, version: str, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Send a request on a wire."""
    headers = client.transport.headers
    if version == VERSION:
        headers.update({"MCP-Protocol-Version": VERSION, "Mcp-Method": method})
        if method in NAMED_BY:
            headers["Mcp-Name"] = params[NAMED_BY[method]]
        params = {**params, **RELEASED}
    elif version == LEGACY and client.session_id is None:
        headers["MCP-Protocol-Version"] = LEGACY
        await client.initialize(LEGACY)
    return await client.request(method, params)


async def ended_job(client_of: ClientOf, fleet: Deployment, gate: str) -> str:
    """Return the id of a task that has ended."""
    client = client_of()
    task = await client.create_task("job", {"gate": gate})
    fleet.open(gate)
    await client.task_result(task["taskId"])
    return str(task["taskId"])


@pytest.mark.parametrize("reaching", REACHING, ids="-".join)
@pytest.mark.parametrize("replica", ["r2", "r3"])
async def test_a_token_without_the_scope_reaches_no_task_whether_or_not_the_tool_is_known(
    client_of: ClientOf, fleet: Deployment, gate: str, replica: str, reaching: tuple[str, str]
) -> None:
    version, method = reaching
    task_id = await ended_job(client_of, fleet, gate)
    client = client_of(replica, scopes=("other",))
    params = {"taskId": task_id, "inputResponses": {}}
    if method == "tasks/input_response":
        params["_meta"] = {RELATED_TASK: {"taskId": task_id}}
    with pytest.raises(RpcError) as refused:
        await ask(client, version, method, params)
    assert refused.value.status == 403
    assert 'error="insufficient_scope"' in challenge_of(client)
    assert 'scope="admin other"' in challenge_of(client)
    assert (await client_of("r3").task_result(task_id)).result["content"][0]["text"] == "TOP-SECRET payroll"


@pytest.mark.parametrize("version", [LEGACY, "draft"])
@pytest.mark.parametrize("replica", ["r2", "r3"])
async def test_a_list_shows_no_task_to_a_token_without_its_scope(
    client_of: ClientOf, fleet: Deployment, gate: str, replica: str, version: str
) -> None:
    task_id = await ended_job(client_of, fleet, gate)
    listed = await ask(client_of(replica, scopes=("other",)), version, "tasks/list", {})
    assert listed["tasks"] == []
    (task,) = (await ask(client_of(replica), version, "tasks/list", {}))["tasks"]
    assert task["taskId"] == task_id


@pytest.mark.parametrize("replica", ["r2", "r3"])
async def test_a_stream_reports_no_task_whose_scope_its_token_lacks(
    client_of: ClientOf, fleet: Deployment, gate: str, replica: str
) -> None:
    task_id = await ended_job(client_of, fleet, gate)
    for scopes, told in ((("other",), []), (("admin",), [task_id])):
        client = client_of(replica, scopes=scopes)
        client.transport.headers.update({"MCP-Protocol-Version": VERSION, "Mcp-Method": "subscriptions/listen"})
        params = {**RELEASED, "notifications": {"taskIds": [task_id]}}
        async with under_way(client, "subscriptions/listen", params) as stream:
            acknowledged = await stream.hear("notifications/subscriptions/acknowledged")
        assert acknowledged["params"]["notifications"].get("taskIds", []) == told


@pytest.mark.parametrize("replica", ["r1", "r2", "r3"])
async def test_a_notification_cancels_no_task_whose_scope_its_token_lacks(
    client_of: ClientOf, fleet: Deployment, gate: str, name: str, replica: str
) -> None:
    user = client_of()
    await user.initialize()
    user.speak_first_form(name)
    params = call_params("job", {"gate": gate}, meta={FIRST_FORM_TASK: {"taskId": name}})
    async with under_way(user, "tools/call", params) as request:
        await request.created()
        client = client_of(replica, scopes=("other",), like=user)
        with pytest.raises(RpcError) as refused:
            await client.notify("notifications/cancelled", {"requestId": request.request_id})
        assert refused.value.status == 403
        assert 'error="insufficient_scope"' in challenge_of(client)
        fleet.open(gate)
        result = (await request.response())["result"]
    assert result["content"][0]["text"] == "TOP-SECRET payroll"
    assert result["_meta"][FIRST_FORM_RELATED_TASK] == {"taskId": name}
