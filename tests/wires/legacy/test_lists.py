"""All clients see tools that run only as tasks, unless the operator hides them from clients without tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from gateway.auth.tokens import mint
from tests.integration.raw import META, META_CAPABILITIES, post, request
from tests.storage.servers import Server
from tests.wires.draft.client import DraftClient
from tests.wires.draft.deployment import SECRET, Deployment
from tests.wires.legacy.speaking import BEFORE_TASKS, LEGACY, speak

pytestmark = pytest.mark.slow

AUDIENCE = "lists"
EXTENSION: Mapping[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


@pytest.fixture(scope="module")
def hiding(redis: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Two replicas: r1 shows these tools to everyone, r2 to clients that declare tasks."""
    own = {"r1": {}, "r2": {"GATEWAY_HIDE_TASK_TOOLS": "on"}}
    settings = {"GATEWAY_TOOLS": "gateway.demo", "GATEWAY_AUDIENCE": AUDIENCE}
    with Deployment(tmp_path_factory.mktemp("lists"), redis, settings, own=own) as deployment:
        yield deployment


def task_tools(tools: list[dict[str, Any]]) -> list[str]:
    """Return which tools say that they run only as tasks."""
    assert {"get_weather", "report"} <= {tool["name"] for tool in tools}
    return [tool["name"] for tool in tools if "runs only as a task" in tool["description"]]


async def told_in_a_session(client: DraftClient, version: str) -> list[str]:
    async with client:
        await speak(client, version)
        return task_tools((await client.request("tools/list"))["tools"])


@pytest.mark.parametrize(
    ("version", "capabilities", "told"),
    [
        (LEGACY, {"elicitation": {}}, {"r1": True, "r2": False}),
        (LEGACY, {"tasks": {}}, {"r1": True, "r2": True}),
        ("DRAFT-2026-v1", {"tasks": {"responses": {"modes": ["task"]}}}, {"r1": True, "r2": True}),
        (BEFORE_TASKS, {"elicitation": {}}, {"r1": True, "r2": False}),
    ],
)
async def test_in_a_session_only_clients_that_declared_tasks_see_them(
    hiding: Deployment, version: str, capabilities: Mapping[str, Any], told: Mapping[str, bool]
) -> None:
    for name, is_told in told.items():
        client = DraftClient([hiding[name].url], token=mint(SECRET, "ada", AUDIENCE), capabilities=capabilities)
        assert await told_in_a_session(client, version) == (["echo"] if is_told else []), name


@pytest.mark.parametrize(
    ("capabilities", "told"), [({}, {"r1": True, "r2": False}), (EXTENSION, {"r1": True, "r2": True})]
)
def test_on_2026_07_28_only_clients_that_declare_the_extension_see_them(
    hiding: Deployment, capabilities: Mapping[str, Any], told: Mapping[str, bool]
) -> None:
    token = mint(SECRET, "ada", AUDIENCE)
    for name, is_told in told.items():
        meta = {**META, META_CAPABILITIES: capabilities}
        listed = post(hiding[name], request("tools/list", {"_meta": meta}), token=token).result
        assert task_tools(listed["tools"]) == (["echo"] if is_told else []), name
        assert listed["cacheScope"] == ("private" if name == "r2" else "public")
