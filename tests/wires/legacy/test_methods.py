"""What 2025-11-25 clients ask for besides calls that ask them: in its own words, and as HTTP that they survive."""

from __future__ import annotations

import asyncio

import pytest

from tests.wires.draft.client import DraftClient
from tests.wires.draft.deployment import Deployment
from tests.wires.draft.messages import call_params
from tests.wires.draft.transport import RpcError
from tests.wires.legacy.conftest import Begin
from tests.wires.legacy.speaking import calling, text_of


async def test_requests_that_leave_nothing_behind_are_acknowledged_with_an_empty_object(user: DraftClient) -> None:
    for method, params in {
        "ping": {},
        "logging/setLevel": {"level": "debug"},
        "resources/subscribe": {"uri": "plain://page"},
        "resources/unsubscribe": {"uri": "plain://page"},
    }.items():
        assert await user.request(method, params) == {}
    with pytest.raises(RpcError) as refused:
        await user.request("logging/setLevel", {"level": "loud"})
    assert (refused.value.status, refused.value.code) == (200, -32602)


async def test_lists_prompts_and_resources_have_no_fields_of_later_versions(user: DraftClient) -> None:
    tools = await user.request("tools/list")
    prompts = await user.request("prompts/list")
    resources = await user.request("resources/list")
    templates = await user.request("resources/templates/list")
    prompt = await user.request("prompts/get", {"name": "plain"})
    page = await user.request("resources/read", {"uri": "plain://page"})
    assert "say" in [tool["name"] for tool in tools["tools"]]
    assert "plain" in [prompt["name"] for prompt in prompts["prompts"]]
    assert "plain://page" in [resource["uri"] for resource in resources["resources"]]
    assert "resourceTemplates" in templates
    assert prompt["messages"][0]["content"] == {"type": "text", "text": "plain"}
    assert page["contents"][0]["text"] == "plain"
    for result in (tools, prompts, resources, templates, prompt, page):
        assert not {"resultType", "ttlMs", "cacheScope", "_meta"} & set(result)


async def test_errors_are_http_200(user: DraftClient) -> None:
    for method, params, code in (
        ("resources/read", {"uri": "plain://elsewhere"}, -32002),
        ("prompts/get", {"name": "nobody"}, -32602),
        ("tools/call", {"name": "nobody"}, -32602),
        ("server/discover", {}, -32601),
        ("tasks/delete", {"taskId": "t"}, -32601),
        ("tasks/input_response", {}, -32601),
        ("unknown/method", {}, -32601),
    ):
        with pytest.raises(RpcError) as refused:
            await user.request(method, params)
        assert (refused.value.status, refused.value.code) == (200, code), method


async def test_state_and_answers_of_other_wires_mean_nothing(user: DraftClient, name: str) -> None:
    params = call_params("say", {"call": name}) | {"requestState": "s1.", "inputResponses": {"form": 7}}
    assert text_of(await user.request("tools/call", params)) == "done"


async def test_progress_comes_with_the_token_before_the_result(user: DraftClient, fleet: Deployment, name: str) -> None:
    fleet.open(name)
    for number in range(2):
        fleet.open(f"{name}-{number}")
    arguments = {"gate": name, "told": [[1, 4, "a quarter"], [2, 4, None]]}
    reply = await user.send("tools/call", call_params("climb", arguments, meta={"progressToken": "p"}))
    assert text_of(reply.result) == "arrived"
    assert [notice["params"] for notice in reply.notices] == [
        {"progressToken": "p", "progress": 1, "total": 4, "message": "a quarter"},
        {"progressToken": "p", "progress": 2, "total": 4},
    ]


async def test_logs_of_level_info_and_above_come_with_the_result(user: DraftClient) -> None:
    reply = await user.send("tools/call", call_params("log_at", {"levels": ["debug", "info", "error"]}))
    assert [notice["params"]["level"] for notice in reply.notices] == ["info", "error"]


async def test_arguments_are_completed(user: DraftClient) -> None:
    ref = {"type": "ref/prompt", "name": "completed"}
    params = {"ref": ref, "argument": {"name": "city", "value": "Par"}}
    completion = (await user.request("completion/complete", params))["completion"]
    assert completion["values"] == ["Paris", "Parma"]


async def test_a_cancelled_call_stops_its_tool_and_is_not_answered(begin: Begin, fleet: Deployment, name: str) -> None:
    user = await begin(urls=fleet.urls[:1])
    async with calling(user, "wait", gate=name) as call:
        await asyncio.to_thread(fleet.wait_for_lines, f"started-{name}")
        (sent,) = user.sent("tools/call")
        await user.notify("notifications/cancelled", {"requestId": sent["id"]})
        assert await call.end() == []
    assert await asyncio.to_thread(fleet.wait_for_lines, f"cancelled-{name}") == ["r1"]


async def test_a_client_that_disconnects_does_not_cancel_its_call(
    user: DraftClient, fleet: Deployment, name: str
) -> None:
    async with calling(user, "outlive", gate=name):
        await asyncio.to_thread(fleet.wait_for_lines, f"started-{name}")
    fleet.open(name)
    assert await asyncio.to_thread(fleet.wait_for_lines, f"ended-{name}")
