"""Drives a gateway with an agent of pydantic-ai, whose model does as it is told."""

# mypy: ignore-errors
# What it imports is in an environment of its own.

from __future__ import annotations

import warnings
from typing import Any

import httpx2
from fastmcp.client.elicitation import ElicitResult
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from tests.integration.frameworks.driving import Recorder, Script, User, main, said_of


async def drive(script: Script) -> dict[str, Any]:
    """List the tools, have an agent call one, and try a token that is not valid."""
    user, recorder, listed = User(), Recorder(), []

    async def answer(message: str, _type: Any, _params: Any, _context: Any) -> ElicitResult:
        content = user.answer(message)
        return ElicitResult(action="decline") if content is None else ElicitResult(action="accept", content=content)

    async def call(toolset: MCPToolset, arguments: dict[str, Any], forms: list[dict[str, Any]]) -> str:
        user.forms = forms

        def respond(messages: list[Any], info: Any) -> ModelResponse:
            """Call the tool, then repeat what it said."""
            listed[:] = [tool.name for tool in info.function_tools]
            if len(messages) == 1:
                return ModelResponse(parts=[ToolCallPart(script.tool, arguments)])
            return ModelResponse(parts=[TextPart(str(messages[-1].parts[0].content))])

        return (await Agent(FunctionModel(respond), toolsets=[toolset]).run("Go")).output

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        async with (
            httpx2.AsyncClient(headers=script.headers, event_hooks=recorder.hooks, timeout=30) as http_client,
            MCPToolset(script.url, http_client=http_client, elicitation_handler=answer) as toolset,
        ):
            said = {name: await said_of(call(toolset, *how)) for name, how in script.calls.items()}
    refused = MCPToolset(script.url, headers=script.refused_headers)
    said["refused"] = await said_of(call(refused, {}, []))
    return {
        "protocol": recorder.version,
        "listed": listed,
        "said": said,
        "questions": user.questions,
        "requests": recorder.requests,
        "warnings": [str(warning.message) for warning in warned],
    }


if __name__ == "__main__":
    main(drive)
