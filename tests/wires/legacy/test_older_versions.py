"""Versions before 2025-06-18: answered with themselves, and never with what their clients refuse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest
from pydantic import BaseModel

from gateway import Context, content, prompt, resource, tool
from gateway.process.app import GatewayApp
from gateway.protocol.legacy.older import known_result
from gateway.protocol.versions import BEFORE_TASKS, DRAFT, LEGACY, OLDER_VERSIONS
from tests.asgi import HOST, Client, make_app
from tests.integration.raw import Answer
from tests.observability.test_counted_calls import SessionClient

BEFORE_ELICITATION, BEFORE_AUDIO = OLDER_VERSIONS
ICONS: Final = [{"src": "https://example.com/icon.png"}]
EVERYTHING: Final[Mapping[str, Any]] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


class Sum(BaseModel):
    total: int


@tool(title="Add up", icons=ICONS, meta={"example.com/a": 1})
async def add() -> Sum:
    """Add up."""
    return Sum(total=3)


@tool
async def count() -> int:
    """Return a number."""
    return 3


@tool
async def find() -> list[content.Content]:
    """Return content of several types."""
    return [
        content.text("Here:"),
        content.resource_link("docs://guide", "guide"),
        content.audio(b"sound", "audio/wav"),
    ]


@tool
async def ask(ctx: Context) -> str:
    """Ask the user, or return that this is not possible."""
    return str((await ctx.elicit("sum", "Which sum?", Sum)).total)


@tool
async def emit(ctx: Context) -> str:
    """Emit content that older versions do not have, then ask."""
    await ctx.emit(content.resource_link("docs://guide", "guide"))
    return (await ctx.sample("poem", "Write a poem", max_tokens=9)).text


@tool
async def what(ctx: Context) -> str:
    """Return which questions the client can answer."""
    return ", ".join(kind for kind in ("elicitation.form", "elicitation.url", "sampling", "roots") if ctx.can(kind))


@prompt(title="A guide", icons=ICONS)
async def guide() -> list[content.Message]:
    """Link to a resource."""
    return [content.user(content.resource_link("docs://guide", "guide")), content.user("Read it.")]


@resource("docs://guide", title="The guide", icons=ICONS)
async def read() -> str:
    """Be read."""
    return "text"


@pytest.fixture(scope="module")
def app() -> GatewayApp:
    return make_app(__name__, server_title="Sums")


async def session(app: GatewayApp, version: str) -> SessionClient:
    """Begin a session in which the client declares everything, and send no version from then on."""
    client = SessionClient(app, version)
    answer = await client.ask("initialize", {"protocolVersion": version, "capabilities": EVERYTHING})
    del client.headers["mcp-protocol-version"]
    client.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
    return client


async def call(client: SessionClient, name: str) -> dict[str, Any]:
    answer: Answer = await client.ask("tools/call", {"name": name})
    result: dict[str, Any] = answer.result
    return result


async def listed(client: SessionClient, name: str) -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in (await client.ask(f"{name}/list", {})).result[name]}


@pytest.mark.parametrize("version", OLDER_VERSIONS)
async def test_a_client_is_answered_with_the_version_that_it_asks_for(app: GatewayApp, version: str) -> None:
    answer = await SessionClient(app, version).ask("initialize", {"protocolVersion": version, "capabilities": {}})
    assert answer.result["protocolVersion"] == version
    assert answer.result["serverInfo"].keys() == {"name", "version"}


@pytest.mark.parametrize("version", OLDER_VERSIONS)
async def test_the_lists_have_only_members_that_the_version_has(app: GatewayApp, version: str) -> None:
    client = await session(app, version)
    tools = await listed(client, "tools")
    assert tools["add"].keys() == {"name", "description", "inputSchema"}
    assert tools["count"].keys() == {"name", "description", "inputSchema"}
    assert (await listed(client, "prompts"))["guide"].keys() <= {"name", "description", "arguments"}
    assert (await listed(client, "resources"))["read"].keys() <= {"name", "description", "uri", "mimeType"}


async def test_2025_06_18_has_titles_and_schemas_of_objects_but_no_icons(app: GatewayApp) -> None:
    client = await session(app, BEFORE_TASKS)
    tools = await listed(client, "tools")
    assert tools["add"].keys() == {"name", "title", "description", "inputSchema", "outputSchema", "_meta"}
    assert "icons" not in (await listed(client, "prompts"))["guide"]
    assert "icons" not in (await listed(client, "resources"))["read"]
    newer = await session(app, LEGACY)
    assert (await listed(newer, "tools"))["add"]["icons"] == ICONS


@pytest.mark.parametrize("version", OLDER_VERSIONS)
async def test_structured_output_reaches_the_client_as_text(app: GatewayApp, version: str) -> None:
    result = await call(await session(app, version), "add")
    assert result == {"content": [{"type": "text", "text": '{"total":3}'}], "isError": False}
    assert "structuredContent" in await call(await session(app, BEFORE_TASKS), "add")


@pytest.mark.parametrize(("version", "has_audio"), [(BEFORE_ELICITATION, True), (BEFORE_AUDIO, False)])
async def test_content_that_the_version_does_not_have_becomes_text(
    app: GatewayApp, version: str, has_audio: bool
) -> None:
    text, link, audio = (await call(await session(app, version), "find"))["content"]
    assert text == {"type": "text", "text": "Here:"}
    assert link == {"type": "text", "text": "guide: docs://guide"}
    assert audio["type"] == ("audio" if has_audio else "text")
    assert has_audio or "audio/wav" in audio["text"]


async def test_content_of_versions_that_have_it_stays(app: GatewayApp) -> None:
    for version in (LEGACY, BEFORE_TASKS, DRAFT):
        blocks = (await call(await session(app, version), "find"))["content"]
        assert [block["type"] for block in blocks] == ["text", "resource_link", "audio"]


@pytest.mark.parametrize("version", OLDER_VERSIONS)
async def test_messages_of_prompts_have_no_links_to_resources(app: GatewayApp, version: str) -> None:
    client = await session(app, version)
    first, second = (await client.ask("prompts/get", {"name": "guide"})).result["messages"]
    assert first["content"] == {"type": "text", "text": "guide: docs://guide"}
    assert second["content"] == {"type": "text", "text": "Read it."}


@pytest.mark.parametrize("version", OLDER_VERSIONS)
async def test_a_client_is_never_asked_by_elicitation_even_if_it_declares_that(app: GatewayApp, version: str) -> None:
    client = await session(app, version)
    assert (await call(client, "what"))["content"][0]["text"] == "sampling, roots"
    result = await call(client, "ask")
    assert result["isError"]
    assert "elicitation.form" in result["content"][0]["text"]


@pytest.mark.parametrize("version", OLDER_VERSIONS)
async def test_a_call_that_cannot_ask_has_no_unknown_content_either(app: GatewayApp, version: str) -> None:
    client = await session(app, version)
    client.headers["accept"] = "application/json"
    result = await call(client, "emit")
    assert result["isError"]
    assert [block["type"] for block in result["content"]] == ["text", "text"]


@pytest.mark.parametrize("version", OLDER_VERSIONS)
async def test_the_header_may_name_the_version_of_the_session_and_no_other(app: GatewayApp, version: str) -> None:
    client = await session(app, version)
    client.headers["mcp-protocol-version"] = version
    assert (await client.ask("ping", {})).result == {}
    client.headers["mcp-protocol-version"] = BEFORE_TASKS
    assert (await client.ask("ping", {})).status == 400


@pytest.mark.parametrize("version", OLDER_VERSIONS)
async def test_a_batch_is_refused_as_a_whole(app: GatewayApp, version: str) -> None:
    client = await session(app, version)
    headers = [HOST, *((name.encode(), value.encode()) for name, value in client.headers.items())]
    ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    answer = await Client(app).send([b"[" + ping + b"," + ping + b"]"], headers)
    assert answer.error == (400, -32600)


def test_questions_and_results_without_content_are_spelled_out_too() -> None:
    audio = {"type": "audio", "data": "", "mimeType": "audio/wav", "annotations": {"audience": ["user"]}}
    question = {"messages": [{"role": "user", "content": [audio, {"type": "text", "text": "a"}]}], "maxTokens": 5}
    told = known_result(question, BEFORE_AUDIO)
    first, second = told["messages"][0]["content"]
    assert (first["type"], first["annotations"]) == ("text", audio["annotations"])
    assert second == {"type": "text", "text": "a"}
    assert told["maxTokens"] == 5
    assert known_result(question, BEFORE_ELICITATION) == question
    structured = known_result({"content": [], "structuredContent": {"a": 1}}, BEFORE_AUDIO)
    assert structured == {"content": [{"type": "text", "text": '{"a":1}'}]}


@pytest.mark.parametrize("block", [5, None, {}, {"type": []}, {"type": "new", "text": "a"}])
def test_content_of_an_unknown_shape_passes_as_on_other_versions(block: Any) -> None:
    assert known_result({"content": [block]}, BEFORE_AUDIO) == {"content": [block]}
    assert known_result({"messages": [{"content": block}]}, BEFORE_AUDIO) == {"messages": [{"content": block}]}


@pytest.mark.parametrize("malformed", [None, "text", 1, ["role"]], ids=str)
def test_a_malformed_message_passes_unchanged_beside_others(malformed: Any) -> None:
    fields = {"messages": [malformed, {"role": "user", "content": {"type": "text", "text": "a"}}]}
    assert known_result(fields, "2024-11-05") == fields
