"""Drives a gateway with the official `mcp` client and returns what it saw, like the drivers of other clients."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import mcp_types
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

ANSWERS = {"name": "Ada", "color": "green", "context": "sailing", "key": "sesame"}


async def drive(url: str) -> dict[str, Any]:
    """Use every feature as a client does, and return what it saw."""
    questions: list[str] = []
    told: list[list[float | None]] = []
    legs: dict[str, list[str]] = {}

    async def answer(context: Any, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
        assert isinstance(params, mcp_types.ElicitRequestFormParams)
        questions.append(params.message)
        (name,) = params.requested_schema["properties"]
        return mcp_types.ElicitResult(action="accept", content={name: ANSWERS[name]})

    async def note_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append([progress, total])

    async def record(response: httpx2.Response) -> None:
        target = response.request.headers.get("mcp-name")
        if target is not None:
            legs.setdefault(target, []).append(response.headers["x-gateway-replica"])

    async with (
        httpx2.AsyncClient(event_hooks={"response": [record]}, timeout=30) as http_client,
        Client(streamable_http_client(url, http_client=http_client), elicitation_callback=answer) as client,
    ):
        reference = mcp_types.PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
        argument = {"name": "arg1", "value": "test"}
        return {
            "protocol": client.protocol_version,
            "tools": [tool.name for tool in (await client.list_tools()).tools],
            "prompts": [prompt.name for prompt in (await client.list_prompts()).prompts],
            "resources": [str(resource.uri) for resource in (await client.list_resources()).resources],
            "templates": [
                template.uri_template for template in (await client.list_resource_templates()).resource_templates
            ],
            "text": text_of(await client.call_tool("test_simple_text")),
            "structured": (await client.call_tool("add", {"numbers": [1, 2, 39]})).structured_content,
            "header": text_of(await client.call_tool("test_x_mcp_header", {"region": "Zürich ✓"})),
            "slow": text_of(await client.call_tool("test_tool_with_progress", progress_callback=note_progress)),
            "asked_tool": text_of(await client.call_tool("test_input_required_result_multi_round")),
            "read": contents_of(await client.read_resource("test://static-text")),
            "read_template": json.loads(contents_of(await client.read_resource("test://template/123/data"))),
            "asked_resource": contents_of(await client.read_resource("vault://treasury")),
            "prompt": messages_of(
                await client.get_prompt("test_prompt_with_arguments", {"arg1": "one", "arg2": "two"})
            ),
            "asked_prompt": messages_of(await client.get_prompt("test_input_required_result_prompt")),
            "completion": (await client.complete(reference, argument)).completion.values,
            "progress": told,
            "questions": questions,
            "legs": legs,
        }


def text_of(result: mcp_types.CallToolResult) -> str:
    return "".join(block.text for block in result.content if isinstance(block, mcp_types.TextContent))


def contents_of(result: mcp_types.ReadResourceResult) -> str:
    return "".join(part.text for part in result.contents if isinstance(part, mcp_types.TextResourceContents))


def messages_of(result: mcp_types.GetPromptResult) -> str:
    contents = (message.content for message in result.messages)
    return "".join(content.text for content in contents if isinstance(content, mcp_types.TextContent))
