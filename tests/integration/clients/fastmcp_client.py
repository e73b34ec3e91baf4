"""Drives a gateway with the `fastmcp` client and prints what it saw as one JSON object.

Usage: fastmcp_client.py URL, with the Python of an environment that has fastmcp.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx2
import mcp_types
from fastmcp import Client  # type: ignore[import-not-found]  # in its own environment
from fastmcp.client.transports import StreamableHttpTransport  # type: ignore[import-not-found]  # likewise

ANSWERS = {"name": "Ada", "color": "green", "context": "sailing", "key": "sesame"}


async def drive(url: str) -> dict[str, Any]:
    """Use every feature as a client does, and return what it saw."""
    questions: list[str] = []
    progress: list[list[float | None]] = []
    legs: dict[str, list[str]] = {}

    async def answer(message: str, _type: Any, params: Any, _context: Any) -> dict[str, str]:
        questions.append(message)
        (property_name,) = params.requested_schema["properties"]
        return {property_name: ANSWERS[property_name]}

    async def note_progress(done: float, total: float | None, _message: str | None) -> None:
        progress.append([done, total])

    async def record(response: httpx2.Response) -> None:
        target = response.request.headers.get("mcp-name")
        if target is not None:
            legs.setdefault(target, []).append(response.headers["x-gateway-replica"])

    def make_http_client(**options: Any) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(event_hooks={"response": [record]}, **options)

    transport = StreamableHttpTransport(url, httpx_client_factory=make_http_client)
    async with Client(transport, elicitation_handler=answer) as client:

        async def call(name: str, arguments: dict[str, Any] | None = None, **options: Any) -> Any:
            return await client.call_tool(name, arguments, **options)

        async def read(uri: str) -> str:
            return "".join(part.text for part in await client.read_resource(uri))

        async def get(name: str, arguments: dict[str, Any] | None = None) -> str:
            return "".join(message.content.text for message in (await client.get_prompt(name, arguments)).messages)

        reference = mcp_types.PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
        return {
            "protocol": client.protocol_version,
            "tools": [tool.name for tool in await client.list_tools()],
            "prompts": [prompt.name for prompt in await client.list_prompts()],
            "resources": [str(resource.uri) for resource in await client.list_resources()],
            "templates": [template.uri_template for template in await client.list_resource_templates()],
            "text": text_of(await call("test_simple_text")),
            "structured": (await call("add", {"numbers": [1, 2, 39]})).structured_content,
            "header": text_of(await call("test_x_mcp_header", {"region": "Zürich ✓"})),
            "slow": text_of(await call("test_tool_with_progress", progress_handler=note_progress)),
            "asked_tool": text_of(await call("test_input_required_result_multi_round")),
            "read": await read("test://static-text"),
            "read_template": json.loads(await read("test://template/123/data")),
            "asked_resource": await read("vault://treasury"),
            "prompt": await get("test_prompt_with_arguments", {"arg1": "one", "arg2": "two"}),
            "asked_prompt": await get("test_input_required_result_prompt"),
            "completion": (await client.complete(reference, {"name": "arg1", "value": "test"})).values,
            "progress": progress,
            "questions": questions,
            "legs": legs,
        }


def text_of(result: Any) -> str:
    return "".join(block.text for block in result.content)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(drive(sys.argv[1]))) + "\n")
