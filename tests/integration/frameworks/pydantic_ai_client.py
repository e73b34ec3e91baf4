"""Drives a gateway with an agent of pydantic-ai with a scripted model."""

# mypy: ignore-errors
# Its imports are in its own environment.

from __future__ import annotations

import warnings
from typing import Any

import httpx2
from fastmcp.client.elicitation import ElicitResult
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from tests.integration.frameworks.driving import PATIENCE_SECONDS, Observer, Script, User, main, said_of


async def drive(script: Script) -> dict[str, Any]:
    """List the tools, have an agent call one, and try an invalid token."""
    user, observer, listed = User(), Observer(), []

    async def answer(message: str, _type: Any, _params: Any, _context: Any) -> ElicitResult:
        content = user.answer(message)
        return ElicitResult(action="decline") if content is None else ElicitResult(action="accept", content=content)

    async def call(toolset: MCPToolset, arguments: dict[str, Any], forms: list[dict[str, Any]]) -> str:
        user.forms = forms

        def respond(messages: list[Any], info: Any) -> ModelResponse:
            """Call the tool, then repeat its output."""
            listed[:] = [tool.name for tool in info.function_tools]
            if len(messages) == 1:
                return ModelResponse(parts=[ToolCallPart(script.tool, arguments)])
            return ModelResponse(parts=[TextPart(str(messages[-1].parts[0].content))])

        return (await Agent(FunctionModel(respond), toolsets=[toolset]).run("Go")).output

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        async with (
            httpx2.AsyncClient(
                headers=script.headers, event_hooks=observer.hooks, timeout=PATIENCE_SECONDS
            ) as http_client,
            MCPToolset(
                script.url, http_client=http_client, elicitation_handler=answer, init_timeout=PATIENCE_SECONDS
            ) as toolset,
        ):
            said = {name: await said_of(call(toolset, *how)) for name, how in script.calls.items()}
    refused = MCPToolset(script.url, headers=script.refused_headers, init_timeout=PATIENCE_SECONDS)
    said["refused"] = await said_of(call(refused, {}, []))
    return {
        "protocol": observer.protocol,
        "listed": listed,
        "said": said,
        "questions": user.questions,
        "warnings": [str(warning.message) for warning in warned],
    }


if __name__ == "__main__":
    main(drive)
